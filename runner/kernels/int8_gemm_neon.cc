#include "runner/kernels/int8_gemm.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include <cstring>

#define QUIRE_INLINE [[gnu::always_inline]] inline
#define QUIRE_INLINE_LAMBDA __attribute__((always_inline))

namespace quire::runner::kernels {
namespace {

#include "runner/kernels/int8_gemm.inl"
#include "runner/kernels/int8_gemm_neon.inl"

// Without dot products: pairs of 16-bit products are added, which hold two of 128 * 127.
struct NeonPairs : Neon {
  template <PanelFormat>
  static constexpr size_t kManyRows = 0;  // products take most of the time

  QUIRE_INLINE static Int Dot(Int sum, Int weight, const int8_t* x) {
    const int8x16_t four = Four(x);
    return {{Dot(sum.half[0], vreinterpretq_s8_s32(weight.half[0]), four),
             Dot(sum.half[1], vreinterpretq_s8_s32(weight.half[1]), four)}};
  }
  QUIRE_INLINE static int32x4_t Dot(int32x4_t sum, int8x16_t weight, int8x16_t x) {
    const int16x8_t low = vmull_s8(vget_low_s8(weight), vget_low_s8(x));
    return vpadalq_s16(sum, vpaddq_s16(low, vmull_high_s8(weight, x)));
  }
};

}  // namespace

Int8Gemm* Int8GemmNeon(weights::DataType type) { return Int8GemmOf<NeonPairs>(type); }

}  // namespace quire::runner::kernels

#else

namespace quire::runner::kernels {
Int8Gemm* Int8GemmNeon(weights::DataType) { return nullptr; }
}  // namespace quire::runner::kernels

#endif
