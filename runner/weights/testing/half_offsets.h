// Which bytes of a block must be numbers.
#pragma once

#include <cstddef>
#include <vector>

#include "runner/weights/block_formats.h"

namespace quire::runner::weights::test {

template <class Block>
std::vector<size_t> HalfOffsetsOf() {
  std::vector<size_t> offsets;
  if constexpr (requires { &Block::d; }) offsets.push_back(offsetof(Block, d));
  if constexpr (requires { &Block::m; }) offsets.push_back(offsetof(Block, m));
  if constexpr (requires { &Block::dmin; }) offsets.push_back(offsetof(Block, dmin));
  return offsets;
}

// Where a block type keeps its float16 numbers; every other byte of a block may hold anything, but for the
// first one where the scale is an exponent.
inline std::vector<size_t> HalfOffsets(DataType type) {
#define QUIRE_HALF_OFFSETS(name, ...) HalfOffsetsOf<Block##name>,
  static constexpr std::vector<size_t> (*kOffsets[])() = {QUIRE_DATA_TYPES(QUIRE_HALF_OFFSETS)};
#undef QUIRE_HALF_OFFSETS
  return kOffsets[static_cast<size_t>(type)]();
}

}  // namespace quire::runner::weights::test
