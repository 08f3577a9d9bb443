// What a request waits for before its answer begins.
#pragma once

#include <string>
#include <string_view>

namespace quire::cli {

// From a reply of /api/ps: "waiting for m" if the model is loaded, "loading m (42%, quantizing weights)"
// while it is being loaded, "loading m" if the reply does not tell.
std::string WaitText(std::string_view ps_json, const std::string& model);

}  // namespace quire::cli
