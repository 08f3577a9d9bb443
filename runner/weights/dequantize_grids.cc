#include "runner/weights/dequantize_grids.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "runner/weights/block_formats.h"
#include "runner/weights/float_bits.h"
#include "runner/weights/grids.h"
#include "runner/weights/scale_bits.h"

namespace quire::runner::weights {
namespace {

constexpr size_t kGroups = 8;  // of 32 elements in a block of 256
constexpr float kTwoBits[4] = {8, 25, 43, 0};
constexpr float kThreeBitsXxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr float kThreeBitsS[8] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr float kDelta = 0.125F;  // IQ1

unsigned At(const std::byte* bytes, size_t i) { return std::to_integer<unsigned>(bytes[i]); }

unsigned Word16(const std::byte* bytes, size_t i) {
  uint16_t word;
  std::memcpy(&word, bytes + 2 * i, sizeof(word));
  return word;
}

uint32_t Word32(const std::byte* bytes, size_t i) {
  uint32_t word;
  std::memcpy(&word, bytes + 4 * i, sizeof(word));
  return word;
}

// Seven signs; the eighth makes their number even.
unsigned EightSigns(unsigned seven) { return seven | static_cast<unsigned>(std::popcount(seven) & 1) << 7; }

// 8 elements of an entry of 2 bits each.
void PutEight(unsigned entry, float scale, unsigned signs, float* to) {
  for (size_t j = 0; j < 8; ++j) {
    const float value = scale * kTwoBits[entry >> (2 * j) & 3U];
    to[j] = (signs >> j & 1U) != 0 ? -value : value;
  }
}

// 4 elements of an entry of 3 bits each.
void PutFour(unsigned entry, const float (&values)[8], float scale, unsigned signs, float* to) {
  for (size_t j = 0; j < 4; ++j) {
    const float value = scale * values[entry >> (3 * j) & 7U];
    to[j] = (signs >> j & 1U) != 0 ? -value : value;
  }
}

// 8 elements -1, 0 or 1, all moved by delta.
void PutTernary(unsigned entry, float scale, float delta, float* to) {
  for (size_t j = 0; j < 8; ++j) {
    to[j] = scale * (static_cast<float>(static_cast<int>(entry >> (2 * j) & 3U) - 1) + delta);
  }
}

float QuarterScale(float d, unsigned nibble) { return d * (0.5F + static_cast<float>(nibble)) * 0.25F; }

// The digit of three that is left on top of a byte multiplied with 3 that often.
float Digit(unsigned byte, unsigned power, float d) {
  const unsigned shifted = byte * power & 255U;
  return d * static_cast<float>(static_cast<int>(shifted * 3 >> 8) - 1);
}

// Half of an unsigned E4M3 number, since the codebook is doubled; 0x7F is no number and counts as 0.
float HalfE4M3(unsigned bits) {
  if (bits == 0x7F) return 0;
  const unsigned exponent = bits >> 3 & 15U, fraction = bits & 7U;
  const float value =
      exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                    : std::ldexp(1.0F + static_cast<float>(fraction) / 8, static_cast<int>(exponent) - 7);
  return value * 0.5F;
}

}  // namespace

void DequantizeBlock(const BlockIQ2_XXS& block, float* to) {
  const float d = LoadF16(block.d);
  for (size_t group = 0; group < kGroups; ++group) {
    const uint32_t signs = Word32(block.qs, 2 * group + 1);
    const float scale = QuarterScale(d, signs >> 28);
    for (size_t l = 0; l < 4; ++l) {
      PutEight(kGridIq2Xxs[At(block.qs, 8 * group + l)], scale, EightSigns(signs >> (7 * l) & 127U),
               to + group * 32 + l * 8);
    }
  }
}

void DequantizeBlock(const BlockIQ2_XS& block, float* to) {
  const float d = LoadF16(block.d);
  for (size_t i = 0; i < 32; ++i) {
    const unsigned word = Word16(block.qs, i);
    const float scale = QuarterScale(d, At(block.scales, i / 4) >> (i / 2 % 2 * 4) & 15U);
    PutEight(kGridIq2Xs[word & 511U], scale, EightSigns(word >> 9), to + i * 8);
  }
}

void DequantizeBlock(const BlockIQ2_S& block, float* to) {
  const float d = LoadF16(block.d);
  for (size_t i = 0; i < 32; ++i) {
    const unsigned high = At(block.qh, i / 4) >> (i % 4 * 2) & 3U;
    const float scale = QuarterScale(d, At(block.scales, i / 4) >> (i / 2 % 2 * 4) & 15U);
    PutEight(kGridIq2S[At(block.qs, i) | high << 8], scale, At(block.signs, i), to + i * 8);
  }
}

void DequantizeBlock(const BlockIQ3_XXS& block, float* to) {
  const float d = LoadF16(block.d);
  for (size_t group = 0; group < kGroups; ++group) {
    const uint32_t word = Word32(block.scales_and_signs, group);
    const float scale = d * (0.5F + static_cast<float>(word >> 28)) * 0.5F;
    for (size_t l = 0; l < 8; ++l) {
      const unsigned signs = EightSigns(word >> (l / 2 * 7) & 127U) >> (l % 2 * 4);
      PutFour(kGridIq3Xxs[At(block.qs, group * 8 + l)], kThreeBitsXxs, scale, signs, to + group * 32 + l * 4);
    }
  }
}

void DequantizeBlock(const BlockIQ3_S& block, float* to) {
  const float d = LoadF16(block.d);
  for (size_t group = 0; group < kGroups; ++group) {
    const unsigned nibble = At(block.scales, group / 2) >> (group % 2 * 4) & 15U;
    const float scale = d * static_cast<float>(1 + 2 * nibble);
    for (size_t l = 0; l < 8; ++l) {
      const unsigned entry = At(block.qs, group * 8 + l) | (At(block.qh, group) >> l & 1U) << 8;
      const unsigned signs = At(block.signs, group * 4 + l / 2) >> (l % 2 * 4);
      PutFour(kGridIq3S[entry], kThreeBitsS, scale, signs, to + group * 32 + l * 4);
    }
  }
}

void DequantizeBlock(const BlockIQ1_S& block, float* to) {
  const float d = LoadF16(block.d);
  for (size_t group = 0; group < kGroups; ++group) {
    const unsigned high = Word16(block.qh, group);
    const float scale = d * static_cast<float>(2 * (high >> 12 & 7U) + 1);
    const float delta = (high & 0x8000U) != 0 ? -kDelta : kDelta;
    for (size_t l = 0; l < 4; ++l) {
      const unsigned entry = At(block.qs, group * 4 + l) | (high >> (3 * l) & 7U) << 8;
      PutTernary(kGridIq1[entry], scale, delta, to + group * 32 + l * 8);
    }
  }
}

void DequantizeBlock(const BlockIQ1_M& block, float* to) {
  unsigned bits = 0;  // float16, a nibble on top of each word of scales
  for (size_t word = 0; word < 4; ++word) bits |= Word16(block.scales, word) >> 12 << (4 * word);
  const float d = F16ToFloat32(static_cast<uint16_t>(bits));
  for (size_t i = 0; i < 32; ++i) {
    const unsigned three = Word16(block.scales, i / 8) >> (i / 2 % 4 * 3) & 7U;
    const unsigned nibble = At(block.qh, i / 2) >> (i % 2 * 4) & 15U;
    const float delta = (nibble & 8U) != 0 ? -kDelta : kDelta;
    PutTernary(kGridIq1[At(block.qs, i) | (nibble & 7U) << 8], d * static_cast<float>(2 * three + 1), delta,
               to + i * 8);
  }
}

void DequantizeBlock(const BlockTQ1_0& block, float* to) {
  const float d = LoadF16(block.d);
  constexpr std::array<unsigned, 5> kPowers = {1, 3, 9, 27, 81};
  const auto put = [&](const std::byte* bytes, size_t count, size_t powers) {
    for (size_t p = 0; p < powers; ++p) {
      for (size_t i = 0; i < count; ++i) *to++ = Digit(At(bytes, i), kPowers[p], d);
    }
  };
  put(block.qs, 32, 5);
  put(block.qs + 32, 16, 5);
  put(block.qh, 4, 4);
}

void DequantizeBlock(const BlockTQ2_0& block, float* to) {
  const float d = LoadF16(block.d);
  for (size_t e = 0; e < 256; ++e) {
    const unsigned q = At(block.qs, e / 128 * 32 + e % 32) >> (e % 128 / 32 * 2) & 3U;
    to[e] = d * static_cast<float>(static_cast<int>(q) - 1);
  }
}

void DequantizeBlock(const BlockNVFP4& block, float* to) {
  const int8_t* values = kCodebooks[static_cast<size_t>(Codebook::kMxfp4)];
  for (size_t part = 0; part < 4; ++part) {
    const float scale = HalfE4M3(At(block.scales, part));
    for (size_t j = 0; j < 8; ++j) {
      const unsigned byte = At(block.qs, part * 8 + j);
      to[part * 16 + j] = scale * static_cast<float>(values[byte & 15U]);
      to[part * 16 + j + 8] = scale * static_cast<float>(values[byte >> 4]);
    }
  }
}

}  // namespace quire::runner::weights
