// Activation functions over vectors, lane by lane. Compiled once per SIMD target.

#if defined(QUIRE_RUNNER_KERNELS_ACTIVATIONS_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_RUNNER_KERNELS_ACTIVATIONS_INL_
#undef QUIRE_RUNNER_KERNELS_ACTIVATIONS_INL_
#else
#define QUIRE_RUNNER_KERNELS_ACTIVATIONS_INL_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "runner/kernels/rows.inl"

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

// x / (1 + exp(-steepness)). exp stays finite: beyond 88 the quotient is below 1e-36 either way.
HWY_INLINE VF32 OverLogistic(VF32 x, VF32 steepness) {
  const F32 d;
  const VF32 e = hn::Exp(d, hn::Min(hn::Neg(steepness), hn::Set(d, 88.0F)));
  return hn::Div(x, hn::Add(e, hn::Set(d, 1.0F)));
}

HWY_INLINE VF32 Sigmoid(VF32 x) { return OverLogistic(hn::Set(F32(), 1.0F), x); }

HWY_INLINE VF32 Silu(VF32 x) { return OverLogistic(x, x); }

// The tanh approximation: x (1 + tanh(c)) / 2 = x / (1 + exp(-2c)), c = sqrt(2 / pi) (x + 0.044715 x^3).
HWY_INLINE VF32 Gelu(VF32 x) {
  const F32 d;
  const VF32 cubed = hn::Mul(hn::Mul(x, x), x);
  const VF32 c = hn::MulAdd(hn::Set(d, 0.044715F), cubed, x);
  return OverLogistic(x, hn::Mul(hn::Set(d, 1.5957691216F), c));
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
