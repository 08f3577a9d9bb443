// For the kernel tests: every instruction set in turn, and the scalar truth about number formats.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace quire::runner::kernels::test {

// Runs `body` once per instruction set of this machine that the kernels are compiled for.
template <class Body>
void ForEachInstructionSet(Body&& body) {
  const int64_t supported = (hwy::SupportedTargets() | HWY_STATIC_TARGET) & HWY_TARGETS;
  for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_NEON, HWY_SCALAR}) {
    if ((supported & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

inline double F16ToFloat32(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

inline double BF16ToFloat32(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

// x with `significant` bits, to nearest even: 11 for float16 (normal range), 8 for bfloat16.
inline float Rounded(float x, int significant) {
  if (x == 0) return x;
  const int shift = significant - 1 - std::ilogb(x);
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(static_cast<double>(x), shift)), -shift));
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  float Float() {
    return static_cast<float>(std::ldexp(static_cast<double>(engine_()), -31) - 1.0);
  }  // [-1, 1)
  std::vector<float> Floats(size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = Float();
    return values;
  }
  // A number below `below`.
  uint32_t Below(uint32_t below) { return static_cast<uint32_t>(engine_() % below); }

 private:
  std::mt19937 engine_;
};

}  // namespace quire::runner::kernels::test
