// The packed scales of blocks of 256.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runner/weights/block_layouts.h"

namespace quire::runner::weights {

// Scales and min offsets of the 8 groups of a Q4_K or Q5_K block, 6 bits each in 12 bytes: the first four lie
// in the low six bits of bytes 0..3 (scales) and 4..7 (min offsets); of the last four, bytes 8..11 hold the
// low nibbles (scale low, min offset high) and the top two bits of bytes 0..7 the rest.
struct GroupScales {
  std::array<uint8_t, 8> scale;
  std::array<uint8_t, 8> min_offset;
};

inline GroupScales UnpackGroupScales(const std::byte* packed) {
  const auto at = [packed](size_t i) { return std::to_integer<uint32_t>(packed[i]); };
  GroupScales scales;
  for (size_t j = 0; j < 4; ++j) {
    scales.scale[j] = static_cast<uint8_t>(at(j) & 63U);
    scales.min_offset[j] = static_cast<uint8_t>(at(j + 4) & 63U);
    scales.scale[j + 4] = static_cast<uint8_t>((at(j + 8) & 15U) | at(j) >> 6 << 4);
    scales.min_offset[j + 4] = static_cast<uint8_t>(at(j + 8) >> 4 | at(j + 4) >> 6 << 4);
  }
  return scales;
}

// The scale of group j of a Q3_K block: a nibble of bytes 0..7 (low for the first eight groups), two more
// bits from bytes 8..11, and 32 less.
inline int Q3Scale(const std::byte* scales, size_t j) {
  const auto at = [scales](size_t i) { return std::to_integer<unsigned>(scales[i]); };
  const unsigned nibble = j < 8 ? at(j) & 15U : at(j - 8) >> 4;
  return static_cast<int>(nibble | (at(8 + j % 4) >> (2 * (j / 4)) & 3U) << 4) - 32;
}

// The scale of group j of an IQ4_XS block, 32 less than its six bits.
inline int Iq4Scale(const BlockIQ4_XS& block, size_t j) {
  const unsigned low = std::to_integer<unsigned>(block.scales_l[j / 2]) >> (j % 2 * 4) & 15U,
                 high = std::to_integer<unsigned>(block.scales_h[j / 4]) >> (j % 4 * 2) & 3U;
  return static_cast<int>(low | high << 4) - 32;
}

inline void PackGroupScales(const GroupScales& scales, std::byte* packed) {
  for (size_t j = 0; j < 4; ++j) {
    const unsigned scale = scales.scale[j + 4], min_offset = scales.min_offset[j + 4];
    packed[j] = static_cast<std::byte>(scales.scale[j] | scale >> 4 << 6);
    packed[j + 4] = static_cast<std::byte>(scales.min_offset[j] | min_offset >> 4 << 6);
    packed[j + 8] = static_cast<std::byte>((scale & 15U) | (min_offset & 15U) << 4);
  }
}

}  // namespace quire::runner::weights
