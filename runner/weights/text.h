// Text taken from model files: checked, and shown safely in messages.
#pragma once

#include <string>
#include <string_view>

namespace quire::runner::weights {

// `text` for an error message: in double quotes, cut to 80 bytes, everything but printable ASCII as \xNN.
std::string Quoted(std::string_view text);

// Names a known stand-in for a model file, as the reason of an error ("a Git LFS pointer, ..."): results of
// failed downloads. Empty if the file is not such a stand-in.
std::string_view StandIn(std::string_view file);

}  // namespace quire::runner::weights
