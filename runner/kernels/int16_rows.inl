// Vectors of float32 numbers as int16 with one scale (cache::ElementType::kI16). Compiled once per SIMD
// target.

#if defined(QUIRE_RUNNER_KERNELS_INT16_ROWS_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_RUNNER_KERNELS_INT16_ROWS_INL_
#undef QUIRE_RUNNER_KERNELS_INT16_ROWS_INL_
#else
#define QUIRE_RUNNER_KERNELS_INT16_ROWS_INL_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runner/kernels/rows.inl"

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

// The largest magnitude of an integer. Products of two are then summed exactly (attention_int16.inl).
constexpr float kInt16Limit = 4095;

struct Int16Row {
  static size_t Bytes(size_t elements) { return elements * sizeof(int16_t); }
};

// Numbers of at most 2^15, rounded to nearest even: at this size a float32 has no fraction.
HWY_INLINE hn::Vec<hn::Rebind<int16_t, F32>> RoundToInt16(VF32 v) {
  const F32 d;
  const hn::RebindToSigned<F32> d32;
  const VF32 moved_by = hn::Set(d, 1.5F * (1 << 23));
  const auto moved = hn::BitCast(d32, hn::Add(v, moved_by));
  return hn::DemoteTo(hn::Rebind<int16_t, F32>(), hn::Sub(moved, hn::BitCast(d32, moved_by)));
}

// to[i] = from[i] / scale, rounded to nearest even; returns the scale, the largest magnitude / kInt16Limit,
// which is NaN if a number is not finite.
HWY_INLINE float QuantizeToInt16(const float* from, size_t count, int16_t* to) {
  constexpr float kNothing = 1e-30F;  // a vector without a larger number is 0
  const F32 d;
  const hn::Rebind<int16_t, F32> d16;
  VF32 top = hn::Zero(d), nothing = hn::Zero(d);
  const auto look_at = [&](VF32 v) HWY_ATTR {
    top = hn::Max(top, hn::Abs(v));
    nothing = hn::Add(nothing, hn::Sub(v, v));
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) look_at(hn::LoadU(d, from + i));
  if (i < count) look_at(LoadFirst(from + i, count - i));
  const float largest = hn::GetLane(hn::MaxOfLanes(d, top));
  const VF32 inverse = hn::Set(d, largest > kNothing ? kInt16Limit / largest : 0);
  const VF32 limit = hn::Set(d, kInt16Limit);
  const auto quantize = [&](VF32 v) HWY_ATTR {
    return RoundToInt16(hn::Clamp(hn::Mul(v, inverse), hn::Neg(limit), limit));
  };
  for (i = 0; i + kLanes <= count; i += kLanes) hn::StoreU(quantize(hn::LoadU(d, from + i)), d16, to + i);
  if (i < count) {
    alignas(64) int16_t rest[kLanes];
    hn::Store(quantize(LoadFirst(from + i, count - i)), d16, rest);
    std::memcpy(to + i, rest, (count - i) * sizeof(int16_t));
  }
  return largest / kInt16Limit + hn::GetLane(hn::SumOfLanes(d, nothing));
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
