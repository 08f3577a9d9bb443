// Which bytes of a block must be numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
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

// Sets every float16 number of a block.
inline void SetHalves(DataType type, uint16_t bits, std::byte* block) {
  for (const size_t offset : HalfOffsets(type)) std::memcpy(block + offset, &bits, sizeof(bits));
  if (type != DataType::kIQ1_M) return;
  for (size_t word = 0; word < 4; ++word) {  // a nibble on top of each word of scales
    std::byte& high = block[offsetof(BlockIQ1_M, scales) + 2 * word + 1];
    high = (high & std::byte{0x0F}) | static_cast<std::byte>((bits >> (4 * word) & 15U) << 4);
  }
}

}  // namespace quire::runner::weights::test
