#include "runner/kernels/int8_gemm.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include <cstring>

// Everything after this line is compiled for the instruction set; nothing it includes may come later.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
#define QUIRE_INLINE [[gnu::always_inline]] inline
#define QUIRE_INLINE_LAMBDA __attribute__((always_inline))

namespace quire::runner::kernels {
namespace {

#include "runner/kernels/int8_gemm.inl"
#include "runner/kernels/int8_gemm_neon.inl"

// Bytes times signed bytes, four at a time.
struct NeonDot : Neon {
  using RowVector = int8x16_t;
  QUIRE_INLINE static RowVector LoadRow(const int8_t* x) { return vld1q_s8(x); }
  template <size_t kLane>
  QUIRE_INLINE static Int DotLane(Int sum, Int weight, RowVector row) {
    return {{vdotq_laneq_s32(sum.half[0], vreinterpretq_s8_s32(weight.half[0]), row, kLane),
             vdotq_laneq_s32(sum.half[1], vreinterpretq_s8_s32(weight.half[1]), row, kLane)}};
  }
};

}  // namespace
}  // namespace quire::runner::kernels
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace quire::runner::kernels {

Int8Gemm* Int8GemmNeonDot(weights::DataType type) {
  static const bool usable = (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  return usable ? Int8GemmOf<NeonDot>(type) : nullptr;
}

}  // namespace quire::runner::kernels

#else

namespace quire::runner::kernels {
Int8Gemm* Int8GemmNeonDot(weights::DataType) { return nullptr; }
}  // namespace quire::runner::kernels

#endif
