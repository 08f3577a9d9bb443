#include <bit>
#include <cstring>

#include "runner/weights/block_formats.h"
#include "runner/weights/dequantize_grids.h"
#include "runner/weights/float_bits.h"
#include "runner/weights/scale_bits.h"

namespace quire::runner::weights {
namespace {

unsigned Byte(std::byte byte) { return std::to_integer<unsigned>(byte); }

int LowNibble(std::byte byte) { return static_cast<int>(Byte(byte) & 15U); }
int HighNibble(std::byte byte) { return static_cast<int>(Byte(byte) >> 4); }

uint16_t Word(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return bits;
}

// ---- floats ----

void DequantizeBlock(const BlockF32& block, float* to) { std::memcpy(to, block.value, sizeof(float)); }
void DequantizeBlock(const BlockF16& block, float* to) { *to = F16ToFloat32(Word(block.value)); }
void DequantizeBlock(const BlockBF16& block, float* to) { *to = BF16ToFloat32(Word(block.value)); }

// ---- blocks of 32 with one scale ----

// value(quant) for the 32 elements of 16 bytes.
template <class Value>
void FourBits(const std::byte* qs, float* to, Value value) {
  for (size_t j = 0; j < 16; ++j) {
    to[j] = value(LowNibble(qs[j]));
    to[j + 16] = value(HighNibble(qs[j]));
  }
}

template <class Value>
void FiveBits(const std::byte* qh, const std::byte* qs, float* to, Value value) {
  uint32_t high;
  std::memcpy(&high, qh, sizeof(high));
  for (uint32_t j = 0; j < 16; ++j) {
    to[j] = value(LowNibble(qs[j]) | static_cast<int>((high >> j & 1U) << 4));
    to[j + 16] = value(HighNibble(qs[j]) | static_cast<int>((high >> (j + 16) & 1U) << 4));
  }
}

void DequantizeBlock(const BlockQ4_0& block, float* to) {
  const float d = LoadF16(block.d);
  FourBits(block.qs, to, [d](int q) { return d * static_cast<float>(q - 8); });
}

void DequantizeBlock(const BlockQ4_1& block, float* to) {
  const float d = LoadF16(block.d), m = LoadF16(block.m);
  FourBits(block.qs, to, [d, m](int q) { return d * static_cast<float>(q) + m; });
}

void DequantizeBlock(const BlockQ5_0& block, float* to) {
  const float d = LoadF16(block.d);
  FiveBits(block.qh, block.qs, to, [d](int q) { return d * static_cast<float>(q - 16); });
}

void DequantizeBlock(const BlockQ5_1& block, float* to) {
  const float d = LoadF16(block.d), m = LoadF16(block.m);
  FiveBits(block.qh, block.qs, to, [d, m](int q) { return d * static_cast<float>(q) + m; });
}

void DequantizeBlock(const BlockQ8_0& block, float* to) {
  const float d = LoadF16(block.d);
  for (size_t j = 0; j < 32; ++j) to[j] = d * static_cast<float>(static_cast<int8_t>(block.qs[j]));
}

// ---- K-quants ----

void DequantizeBlock(const BlockQ2_K& block, float* to) {
  const float d = LoadF16(block.d), dmin = LoadF16(block.dmin);
  for (size_t group = 0; group < 16; ++group) {
    const unsigned scales = Byte(block.scales[group]);
    const float scale = d * static_cast<float>(scales & 15U),
                min_offset = dmin * static_cast<float>(scales >> 4);
    const std::byte* bytes = block.qs + group / 8 * 32 + group % 2 * 16;
    const size_t shift = group % 8 / 2 * 2;
    for (size_t e = 0; e < 16; ++e) {
      to[group * 16 + e] = scale * static_cast<float>(Byte(bytes[e]) >> shift & 3U) - min_offset;
    }
  }
}

void DequantizeBlock(const BlockQ3_K& block, float* to) {
  const float d = LoadF16(block.d);
  for (size_t group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(Q3Scale(block.scales, group));
    const std::byte* bytes = block.qs + group / 8 * 32 + group % 2 * 16;
    const std::byte* mask = block.hmask + group % 2 * 16;
    const size_t shift = group % 8 / 2 * 2, bit = group / 2;
    for (size_t e = 0; e < 16; ++e) {
      const unsigned q = (Byte(bytes[e]) >> shift & 3U) | (Byte(mask[e]) >> bit & 1U) << 2;
      to[group * 16 + e] = scale * static_cast<float>(static_cast<int>(q) - 4);
    }
  }
}

// Q4_K and Q5_K: high_bit(group, e) is the fifth bit, in place.
template <class Block, class HighBit>
void DequantizeGroupsOf32(const Block& block, float* to, HighBit high_bit) {
  const float d = LoadF16(block.d), dmin = LoadF16(block.dmin);
  const GroupScales scales = UnpackGroupScales(block.scales);
  for (size_t group = 0; group < 8; ++group) {
    const float scale = d * scales.scale[group], min_offset = dmin * scales.min_offset[group];
    const std::byte* bytes = block.qs + group / 2 * 32;
    const size_t shift = group % 2 * 4;
    for (size_t e = 0; e < 32; ++e) {
      const unsigned q = (Byte(bytes[e]) >> shift & 15U) | high_bit(group, e);
      to[group * 32 + e] = scale * static_cast<float>(q) - min_offset;
    }
  }
}

void DequantizeBlock(const BlockQ4_K& block, float* to) {
  DequantizeGroupsOf32(block, to, [](size_t, size_t) { return 0U; });
}

void DequantizeBlock(const BlockQ5_K& block, float* to) {
  DequantizeGroupsOf32(block, to,
                       [&](size_t group, size_t e) { return (Byte(block.qh[e]) >> group & 1U) << 4; });
}

void DequantizeBlock(const BlockQ6_K& block, float* to) {
  const float d = LoadF16(block.d);
  for (size_t group = 0; group < 16; ++group) {  // of 16
    const size_t half = group / 8, g = group % 8 / 2, e0 = group % 2 * 16;
    const float scale = d * static_cast<float>(static_cast<int8_t>(block.scales[group]));
    const std::byte* low = block.ql + half * 64 + g % 2 * 32 + e0;
    const std::byte* high = block.qh + half * 32 + e0;
    for (size_t e = 0; e < 16; ++e) {
      const unsigned q = (Byte(low[e]) >> (g / 2 * 4) & 15U) | (Byte(high[e]) >> (2 * g) & 3U) << 4;
      to[group * 16 + e] = scale * static_cast<float>(static_cast<int>(q) - 32);
    }
  }
}

// ---- codebooks ----

void LookUp(const std::byte* qs, float scale, Codebook codebook, float* to) {
  const int8_t* values = kCodebooks[static_cast<size_t>(codebook)];
  FourBits(qs, to, [=](int q) { return scale * static_cast<float>(values[q]); });
}

// 2^(e - 128), half of what the exponent byte says: the codebook is doubled. Subnormal below e = 2.
float HalfPowerOfTwo(unsigned e) {
  return std::bit_cast<float>(e < 2 ? uint32_t{0x00200000} << e : uint32_t{e - 1} << 23);
}

void DequantizeBlock(const BlockIQ4_NL& block, float* to) {
  LookUp(block.qs, LoadF16(block.d), Codebook::kIq4, to);
}

void DequantizeBlock(const BlockIQ4_XS& block, float* to) {
  const float d = LoadF16(block.d);
  for (size_t group = 0; group < 8; ++group) {
    LookUp(block.qs + group * 16, d * static_cast<float>(Iq4Scale(block, group)), Codebook::kIq4,
           to + group * 32);
  }
}

void DequantizeBlock(const BlockMXFP4& block, float* to) {
  LookUp(block.qs, HalfPowerOfTwo(Byte(block.e)), Codebook::kMxfp4, to);
}

}  // namespace

template <class Block>
void DequantizeBlocks(const std::byte* from, size_t blocks, float* to) {
  for (; blocks != 0; --blocks, from += sizeof(Block), to += Block::kElements) {
    DequantizeBlock(*reinterpret_cast<const Block*>(from), to);
  }
}

#define QUIRE_INSTANTIATE(name, ...) \
  template void DequantizeBlocks<Block##name>(const std::byte* from, size_t blocks, float* to);
QUIRE_DATA_TYPES(QUIRE_INSTANTIATE)
#undef QUIRE_INSTANTIATE

}  // namespace quire::runner::weights
