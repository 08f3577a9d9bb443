#include "runner/weights/block_quants.h"

#include <cstring>

#include "runner/weights/scale_bits.h"

namespace quire::runner::weights {
namespace {

uint8_t Byte(std::byte byte) { return std::to_integer<uint8_t>(byte); }

uint16_t Word(const std::byte* from) {
  uint16_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// to[e] = `kBits` bits of from[e] from `shift` up, shifted left by `up`, ORed into it.
template <unsigned kBits>
void AddBits(const std::byte* from, size_t count, size_t shift, size_t up, uint8_t* to) {
  for (size_t e = 0; e < count; ++e) {
    to[e] = static_cast<uint8_t>(to[e] | (Byte(from[e]) >> shift & ((1U << kBits) - 1)) << up);
  }
}
template <unsigned kBits>
void SetBits(const std::byte* from, size_t count, size_t shift, uint8_t* to) {
  for (size_t e = 0; e < count; ++e) {
    to[e] = static_cast<uint8_t>(Byte(from[e]) >> shift & ((1U << kBits) - 1));
  }
}

// 32 elements: low nibbles of 16 bytes, then the high ones.
void Nibbles(const std::byte* from, uint8_t* to) {
  SetBits<4>(from, 16, 0, to);
  SetBits<4>(from, 16, 4, to + 16);
}

void AddHighBit(const std::byte* from, uint8_t* to) {
  uint32_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  for (uint32_t e = 0; e < 32; ++e) to[e] = static_cast<uint8_t>(to[e] | (bits >> e & 1U) << 4);
}

void UnpackBlock8(const std::byte* from, BlockQuants* to) {
  to->scale = Word(from);
  for (size_t e = 0; e < 32; ++e) to->quant[e] = static_cast<uint8_t>(Byte(from[2 + e]) ^ 0x80U);
}

// Q4_0, Q4_1, Q5_0, Q5_1: d, [m], [high bits], nibbles.
void UnpackBlock32(const std::byte* from, bool has_min_offset, bool has_high_bit, BlockQuants* to) {
  to->scale = Word(from);
  from += 2;
  if (has_min_offset) {
    to->min_offset = Word(from);
    from += 2;
  }
  Nibbles(has_high_bit ? from + 4 : from, to->quant.data());
  if (has_high_bit) AddHighBit(from, to->quant.data());
}

// Two bits of 256 elements in 64 bytes: of each half, 32 elements per pair of bits.
void PairsOfBits(const std::byte* from, uint8_t* to) {
  for (size_t group = 0; group < 8; ++group) {
    SetBits<2>(from + group / 4 * 32, 32, group % 4 * 2, to + group * 32);
  }
}

void UnpackBlockQ2K(const std::byte* from, BlockQuants* to) {
  to->scale = Word(from + 80);
  to->min_offset = Word(from + 82);
  PairsOfBits(from + 16, to->quant.data());
  for (size_t group = 0; group < 16; ++group) {
    to->group_scale[group] = static_cast<int8_t>(Byte(from[group]) & 15U);
    to->group_min_offset[group] = static_cast<uint8_t>(Byte(from[group]) >> 4);
  }
}

void UnpackBlockQ3K(const std::byte* from, BlockQuants* to) {
  to->scale = Word(from + 108);
  PairsOfBits(from + 32, to->quant.data());
  for (size_t group = 0; group < 8; ++group) AddBits<1>(from, 32, group, 2, to->quant.data() + group * 32);
  for (size_t group = 0; group < 16; ++group) {
    to->group_scale[group] = static_cast<int8_t>(Q3Scale(from + 96, group));
  }
}

// Q4_K and Q5_K: d, dmin, packed scales, [high bits], nibbles.
void UnpackBlockQ45K(const std::byte* from, bool has_high_bit, BlockQuants* to) {
  to->scale = Word(from);
  to->min_offset = Word(from + 2);
  const GroupScales scales = UnpackGroupScales(from + 4);
  const std::byte* nibbles = from + (has_high_bit ? 48 : 16);
  for (size_t group = 0; group < 8; ++group) {
    to->group_scale[group] = static_cast<int8_t>(scales.scale[group]);
    to->group_min_offset[group] = scales.min_offset[group];
    uint8_t* quants = to->quant.data() + group * 32;
    SetBits<4>(nibbles + group / 2 * 32, 32, group % 2 * 4, quants);
    if (has_high_bit) AddBits<1>(from + 16, 32, group, 4, quants);
  }
}

void UnpackBlockQ6K(const std::byte* from, BlockQuants* to) {
  to->scale = Word(from + 208);
  for (size_t group = 0; group < 8; ++group) {
    const size_t half = group / 4, g = group % 4;
    uint8_t* quants = to->quant.data() + group * 32;
    SetBits<4>(from + half * 64 + g % 2 * 32, 32, g / 2 * 4, quants);
    AddBits<2>(from + 128 + half * 32, 32, g * 2, 4, quants);
  }
  std::memcpy(to->group_scale.data(), from + 192, 16);
}

void UnpackBlockIq4Xs(const std::byte* from, BlockQuants* to) {
  to->scale = Word(from);
  for (size_t group = 0; group < 8; ++group) {
    to->group_scale[group] = static_cast<int8_t>(Iq4Scale(from, group));
    Nibbles(from + 8 + group * 16, to->quant.data() + group * 32);
  }
}

}  // namespace

void UnpackBlock(DataType type, const std::byte* from, BlockQuants* to) {
  switch (type) {
    case DataType::kQ8_0:
      return UnpackBlock8(from, to);
    case DataType::kQ4_0:
    case DataType::kIQ4_NL:
      return UnpackBlock32(from, false, false, to);
    case DataType::kQ4_1:
      return UnpackBlock32(from, true, false, to);
    case DataType::kQ5_0:
      return UnpackBlock32(from, false, true, to);
    case DataType::kQ5_1:
      return UnpackBlock32(from, true, true, to);
    case DataType::kMXFP4:
      to->scale = Byte(from[0]);
      return Nibbles(from + 1, to->quant.data());
    case DataType::kQ2_K:
      return UnpackBlockQ2K(from, to);
    case DataType::kQ3_K:
      return UnpackBlockQ3K(from, to);
    case DataType::kQ4_K:
      return UnpackBlockQ45K(from, false, to);
    case DataType::kQ5_K:
      return UnpackBlockQ45K(from, true, to);
    case DataType::kQ6_K:
      return UnpackBlockQ6K(from, to);
    case DataType::kIQ4_XS:
      return UnpackBlockIq4Xs(from, to);
    case DataType::kF32:
    case DataType::kF16:
    case DataType::kBF16:
      return;
  }
}

}  // namespace quire::runner::weights
