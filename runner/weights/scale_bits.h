// The packed six-bit scales of K-quant blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace quire::runner::weights {

// Scales and minimums of the 8 groups of a Q4_K or Q5_K block, 6 bits each in 12 bytes: the first four lie in
// the low six bits of bytes 0..3 (scales) and 4..7 (minimums); of the last four, bytes 8..11 hold the low
// nibbles (scale low, minimum high) and the top two bits of bytes 0..7 the rest.
struct GroupScales {
  std::array<uint8_t, 8> scale;
  std::array<uint8_t, 8> minimum;
};

inline GroupScales UnpackGroupScales(const std::byte* packed) {
  const auto at = [packed](size_t i) { return std::to_integer<uint32_t>(packed[i]); };
  GroupScales scales;
  for (size_t j = 0; j < 4; ++j) {
    scales.scale[j] = static_cast<uint8_t>(at(j) & 63U);
    scales.minimum[j] = static_cast<uint8_t>(at(j + 4) & 63U);
    scales.scale[j + 4] = static_cast<uint8_t>((at(j + 8) & 15U) | at(j) >> 6 << 4);
    scales.minimum[j + 4] = static_cast<uint8_t>(at(j + 8) >> 4 | at(j + 4) >> 6 << 4);
  }
  return scales;
}

inline void PackGroupScales(const GroupScales& scales, std::byte* packed) {
  for (size_t j = 0; j < 4; ++j) {
    const unsigned scale = scales.scale[j + 4], minimum = scales.minimum[j + 4];
    packed[j] = static_cast<std::byte>(scales.scale[j] | scale >> 4 << 6);
    packed[j + 4] = static_cast<std::byte>(scales.minimum[j] | minimum >> 4 << 6);
    packed[j + 8] = static_cast<std::byte>((scale & 15U) | (minimum & 15U) << 4);
  }
}

}  // namespace quire::runner::weights
