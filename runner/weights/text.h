// Text taken from model files: checked, and shown safely in messages.
#pragma once

#include <string>
#include <string_view>

namespace quire::runner::weights {

bool IsUtf8(std::string_view text);

// `text` for an error message: in double quotes, cut to 80 bytes, everything but printable ASCII as \xNN.
std::string Quoted(std::string_view text);

// What a file that should hold something else is, as a reason for an error ("a Git LFS pointer, ..."): what
// downloads leave that went wrong. Empty when it is nothing known.
std::string_view StandIn(std::string_view file);

}  // namespace quire::runner::weights
