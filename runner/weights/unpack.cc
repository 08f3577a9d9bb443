#include <cstring>

#include "runner/weights/block_formats.h"
#include "runner/weights/scale_bits.h"
#include "runner/weights/unpack_grids.h"

namespace quire::runner::weights {
namespace {

uint8_t ByteAt(std::byte byte) { return std::to_integer<uint8_t>(byte); }

uint16_t WordAt(const std::byte* from) {
  uint16_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// to[e] = `kBits` bits of from[e] from `shift` up, shifted left by `up`, ORed into it.
template <unsigned kBits>
void AddBits(const std::byte* from, size_t count, size_t shift, size_t up, uint8_t* to) {
  for (size_t e = 0; e < count; ++e) {
    to[e] = static_cast<uint8_t>(to[e] | (ByteAt(from[e]) >> shift & ((1U << kBits) - 1)) << up);
  }
}
template <unsigned kBits>
void SetBits(const std::byte* from, size_t count, size_t shift, uint8_t* to) {
  for (size_t e = 0; e < count; ++e) {
    to[e] = static_cast<uint8_t>(ByteAt(from[e]) >> shift & ((1U << kBits) - 1));
  }
}

// 32 elements: low nibbles of 16 bytes, then the high ones.
void Nibbles(const std::byte* from, uint8_t* to) {
  SetBits<4>(from, 16, 0, to);
  SetBits<4>(from, 16, 4, to + 16);
}

// d, [m], [qh], qs.
template <class Block>
void UnpackBlockOf32(const Block& block, BlockQuants* to) {
  to->scale = WordAt(block.d);
  if constexpr (requires { block.m; }) to->min_offset = WordAt(block.m);
  Nibbles(block.qs, to->quant.data());
  if constexpr (requires { block.qh; }) {
    uint32_t bits;
    std::memcpy(&bits, block.qh, sizeof(bits));
    for (uint32_t e = 0; e < 32; ++e)
      to->quant[e] = static_cast<uint8_t>(to->quant[e] | (bits >> e & 1U) << 4);
  }
}

void UnpackBlock(const BlockQ4_0& block, BlockQuants* to) { UnpackBlockOf32(block, to); }
void UnpackBlock(const BlockQ4_1& block, BlockQuants* to) { UnpackBlockOf32(block, to); }
void UnpackBlock(const BlockQ5_0& block, BlockQuants* to) { UnpackBlockOf32(block, to); }
void UnpackBlock(const BlockQ5_1& block, BlockQuants* to) { UnpackBlockOf32(block, to); }
void UnpackBlock(const BlockIQ4_NL& block, BlockQuants* to) { UnpackBlockOf32(block, to); }

void UnpackBlock(const BlockQ8_0& block, BlockQuants* to) {
  to->scale = WordAt(block.d);
  for (size_t e = 0; e < 32; ++e) to->quant[e] = static_cast<uint8_t>(ByteAt(block.qs[e]) ^ 0x80U);
}

// Two bits of 256 elements in 64 bytes: of each half, 32 elements per pair of bits.
void PairsOfBits(const std::byte* from, uint8_t* to) {
  for (size_t group = 0; group < 8; ++group) {
    SetBits<2>(from + group / 4 * 32, 32, group % 4 * 2, to + group * 32);
  }
}

void UnpackBlock(const BlockQ2_K& block, BlockQuants* to) {
  to->scale = WordAt(block.d);
  to->min_offset = WordAt(block.dmin);
  PairsOfBits(block.qs, to->quant.data());
  for (size_t group = 0; group < 16; ++group) {
    to->group_scale[group] = static_cast<int8_t>(ByteAt(block.scales[group]) & 15U);
    to->group_min_offset[group] = static_cast<uint8_t>(ByteAt(block.scales[group]) >> 4);
  }
}

void UnpackBlock(const BlockQ3_K& block, BlockQuants* to) {
  to->scale = WordAt(block.d);
  PairsOfBits(block.qs, to->quant.data());
  for (size_t group = 0; group < 8; ++group) {
    AddBits<1>(block.hmask, 32, group, 2, to->quant.data() + group * 32);
  }
  for (size_t group = 0; group < 16; ++group) {
    to->group_scale[group] = static_cast<int8_t>(Q3Scale(block.scales, group));
  }
}

// d, dmin, packed scales, [qh], qs.
template <class Block>
void UnpackGroupsOf32(const Block& block, BlockQuants* to) {
  to->scale = WordAt(block.d);
  to->min_offset = WordAt(block.dmin);
  const GroupScales scales = UnpackGroupScales(block.scales);
  for (size_t group = 0; group < 8; ++group) {
    to->group_scale[group] = static_cast<int8_t>(scales.scale[group]);
    to->group_min_offset[group] = scales.min_offset[group];
    uint8_t* quants = to->quant.data() + group * 32;
    SetBits<4>(block.qs + group / 2 * 32, 32, group % 2 * 4, quants);
    if constexpr (requires { block.qh; }) AddBits<1>(block.qh, 32, group, 4, quants);
  }
}

void UnpackBlock(const BlockQ4_K& block, BlockQuants* to) { UnpackGroupsOf32(block, to); }
void UnpackBlock(const BlockQ5_K& block, BlockQuants* to) { UnpackGroupsOf32(block, to); }

void UnpackBlock(const BlockQ6_K& block, BlockQuants* to) {
  to->scale = WordAt(block.d);
  for (size_t group = 0; group < 8; ++group) {
    const size_t half = group / 4, g = group % 4;
    uint8_t* quants = to->quant.data() + group * 32;
    SetBits<4>(block.ql + half * 64 + g % 2 * 32, 32, g / 2 * 4, quants);
    AddBits<2>(block.qh + half * 32, 32, g * 2, 4, quants);
  }
  std::memcpy(to->group_scale.data(), block.scales, sizeof(block.scales));
}

void UnpackBlock(const BlockIQ4_XS& block, BlockQuants* to) {
  to->scale = WordAt(block.d);
  for (size_t group = 0; group < 8; ++group) {
    to->group_scale[group] = static_cast<int8_t>(Iq4Scale(block, group));
    Nibbles(block.qs + group * 16, to->quant.data() + group * 32);
  }
}

void UnpackBlock(const BlockMXFP4& block, BlockQuants* to) {
  to->scale = ByteAt(block.e);
  Nibbles(block.qs, to->quant.data());
}

template <class Block, QuantFormat kQuants>
void UnpackBlockAt(const std::byte* from, BlockQuants* to) {
  if constexpr (kQuants.bits != 0) UnpackBlock(*reinterpret_cast<const Block*>(from), to);
}

}  // namespace

void UnpackBlock(DataType type, const std::byte* from, BlockQuants* to) {
  switch (type) {
#define QUIRE_UNPACK(name, ggml_id, ...) \
  case DataType::k##name:                \
    return UnpackBlockAt<Block##name, QuantFormat{__VA_ARGS__}>(from, to);
    QUIRE_DATA_TYPES(QUIRE_UNPACK)
#undef QUIRE_UNPACK
  }
}

}  // namespace quire::runner::weights
