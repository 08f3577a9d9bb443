// The class of runners whose prefixes have the same bytes.
#pragma once

#include <cstdint>
#include <string>

#include "cache/layout.h"

namespace quire::runner::engine {

// What the bytes of a prefix depend on beside the model's files and the program: the layout of the caches,
// the kernels, and the context, by which some models choose their rotations.
std::string ByteClass(const cache::Layout& layout, int32_t context);

}  // namespace quire::runner::engine
