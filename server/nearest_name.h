// The name that somebody probably meant who wrote another one.
#pragma once

#include <span>
#include <string_view>

namespace quire::server {

// The one of `names` that the fewest inserted, removed or replaced characters make of `name`; the first of
// several. Empty: there are no names.
std::string_view NearestName(std::string_view name, std::span<const std::string_view> names);

}  // namespace quire::server
