// The values of JSON Schema's `format` for strings.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace quire::runner::constraint {

// A regular expression of texts that are all of the format; of formats with many spellings only the usual
// ones. Nothing for a format that is not known.
std::optional<std::string> PatternOfFormat(std::string_view format);

}  // namespace quire::runner::constraint
