// float16 and bfloat16 as bits, to and from float32.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace quire::runner::weights {

// Exact. A NaN stays a NaN with its payload.
constexpr float F16ToFloat32(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000U) << 16, exponent = bits >> 10 & 31U, fraction = bits & 1023U;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float size = static_cast<float>(fraction) * 0x1p-24F;
  return sign != 0 ? -size : size;
}

constexpr float BF16ToFloat32(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// To nearest, ties to even; what is too large becomes infinite, a NaN stays one.
constexpr uint16_t Float32ToF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000U);
  const uint32_t size = bits & 0x7fffffffU;
  if (size > 0x7f800000U) return static_cast<uint16_t>(sign | 0x7e00U);
  if (size >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);  // 65520 and above
  if (size < 0x33000001U) return sign;                                    // half of the smallest and below
  const bool subnormal = size < 0x38800000U;
  const uint32_t fraction = (size & 0x7fffffU) | 0x800000U;
  const uint32_t shift = subnormal ? 126U - (size >> 23) : 13U;
  const uint32_t kept = subnormal ? fraction >> shift : (size - 0x38000000U) >> 13;
  const uint32_t rest = (subnormal ? fraction : size) & ((1U << shift) - 1), half = 1U << (shift - 1);
  const bool up = rest > half || (rest == half && (kept & 1U) != 0);
  return static_cast<uint16_t>(sign | (kept + (up ? 1U : 0U)));
}

constexpr uint16_t Float32ToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>(bits >> 16 | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

// A float16 at any address.
inline float LoadF16(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return F16ToFloat32(bits);
}

inline void StoreF16(float value, std::byte* to) {
  const uint16_t bits = Float32ToF16(value);
  std::memcpy(to, &bits, sizeof(bits));
}

}  // namespace quire::runner::weights
