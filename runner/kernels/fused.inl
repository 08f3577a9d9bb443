// Multiplication and addition rounded once, on machines without such an instruction too: a sum of one lane
// over rows is bit-identical on every target. Compiled once per SIMD target.

#if defined(QUIRE_RUNNER_KERNELS_FUSED_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_RUNNER_KERNELS_FUSED_INL_
#undef QUIRE_RUNNER_KERNELS_FUSED_INL_
#else
#define QUIRE_RUNNER_KERNELS_FUSED_INL_
#endif

#include <hwy/highway.h>

#include <cmath>

#include "runner/kernels/rows.inl"

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

// a * b + c, rounded once on every target.
HWY_INLINE VF32 Fused(VF32 a, VF32 b, VF32 c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  alignas(64) float x[kLanes], y[kLanes], z[kLanes];
  hn::Store(a, F32(), x);
  hn::Store(b, F32(), y);
  hn::Store(c, F32(), z);
  for (size_t i = 0; i < kLanes; ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(F32(), z);
#endif
}

// Whole vectors, or the first `count` lanes of one.
template <bool kWhole>
struct Lanes {
  size_t count;
  HWY_INLINE VF32 Load(const float* from) const {
    if constexpr (kWhole) return hn::LoadU(F32(), from);
    return LoadFirst(from, count);
  }
  HWY_INLINE void Store(VF32 v, float* to) const {
    if constexpr (kWhole) {
      hn::StoreU(v, F32(), to);
    } else {
      StoreFirst(v, to, count);
    }
  }
};

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
