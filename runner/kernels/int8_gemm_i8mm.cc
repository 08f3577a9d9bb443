#include "runner/kernels/int8_gemm.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include <cstring>

// Everything after this line is compiled for the instruction set; nothing it includes may come later.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod,i8mm"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm")
#endif
#define QUIRE_INLINE [[gnu::always_inline]] inline
#define QUIRE_INLINE_LAMBDA __attribute__((always_inline))

namespace quire::runner::kernels {
namespace {

#include "runner/kernels/int8_gemm.inl"
#include "runner/kernels/int8_gemm_neon.inl"

// Two rows times two outputs, eight elements at a time; a row alone as with dot products.
struct NeonI8mm : Neon {
  static constexpr int kPairRows = 2;

  using RowVector = int8x16_t;
  QUIRE_INLINE static RowVector LoadRow(const int8_t* x) { return vld1q_s8(x); }
  template <size_t kLane>
  QUIRE_INLINE static Int DotLane(Int sum, Int weight, RowVector row) {
    return {{vdotq_laneq_s32(sum.half[0], vreinterpretq_s8_s32(weight.half[0]), row, kLane),
             vdotq_laneq_s32(sum.half[1], vreinterpretq_s8_s32(weight.half[1]), row, kLane)}};
  }

  // The weights of 8 elements, two outputs each.
  struct PairWeights {
    int8x16_t two[4];
  };
  // `first` has elements 0 to 3 of each output, `second` 4 to 7.
  QUIRE_INLINE static PairWeights Pair(Int first, Int second) {
    const auto zip = [](int32x4_t a, int32x4_t b)
                         QUIRE_INLINE_LAMBDA { return vreinterpretq_s8_s32(vzip1q_s32(a, b)); };
    const auto zip_high = [](int32x4_t a, int32x4_t b)
                              QUIRE_INLINE_LAMBDA { return vreinterpretq_s8_s32(vzip2q_s32(a, b)); };
    return {{zip(first.half[0], second.half[0]), zip_high(first.half[0], second.half[0]),
             zip(first.half[1], second.half[1]), zip_high(first.half[1], second.half[1])}};
  }
  // Sums of two rows begin with a number for each row. Until FinishPair() row `a` has the sums of both rows with
  // outputs 0 to 3, `b` with 4 to 7: of each two outputs first those of the one row, then those of the other.
  QUIRE_INLINE static void StartPair(Int* a, Int* b) {
    const int32x4_t start = vcombine_s32(vget_low_s32(a->half[0]), vget_low_s32(b->half[0]));
    *a = {{start, start}};
    *b = *a;
  }
  // Elements 0 to 7 of two rows, and 8 to 15.
  struct PairVector {
    int8x16_t half[2];
  };
  // x: 16 elements of each row, kKBlock apart.
  QUIRE_INLINE static PairVector LoadPair(const int8_t* x) {
    const int64x2_t first = vreinterpretq_s64_s8(vld1q_s8(x));
    const int64x2_t second = vreinterpretq_s64_s8(vld1q_s8(x + kKBlock));
    return {
        {vreinterpretq_s8_s64(vzip1q_s64(first, second)), vreinterpretq_s8_s64(vzip2q_s64(first, second))}};
  }
  template <size_t kHalf>
  QUIRE_INLINE static void DotPair(const PairWeights& weight, const PairVector& x, Int* a, Int* b) {
    const int8x16_t rows = x.half[kHalf];
    a->half[0] = vmmlaq_s32(a->half[0], rows, weight.two[0]);
    a->half[1] = vmmlaq_s32(a->half[1], rows, weight.two[1]);
    b->half[0] = vmmlaq_s32(b->half[0], rows, weight.two[2]);
    b->half[1] = vmmlaq_s32(b->half[1], rows, weight.two[3]);
  }
  QUIRE_INLINE static void FinishPair(Int* a, Int* b) {
    const Int sums[] = {*a, *b};
    const auto low = [](Int of) QUIRE_INLINE_LAMBDA {
      return vcombine_s32(vget_low_s32(of.half[0]), vget_low_s32(of.half[1]));
    };
    const auto high = [](Int of) QUIRE_INLINE_LAMBDA {
      return vcombine_s32(vget_high_s32(of.half[0]), vget_high_s32(of.half[1]));
    };
    *a = {{low(sums[0]), low(sums[1])}};
    *b = {{high(sums[0]), high(sums[1])}};
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

Int8Gemm* Int8GemmNeonI8mm(weights::DataType type) {
  static const bool usable =
      (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0 && (::getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
  return usable ? Int8GemmOf<NeonI8mm>(type) : nullptr;
}

}  // namespace quire::runner::kernels

#else

namespace quire::runner::kernels {
Int8Gemm* Int8GemmNeonI8mm(weights::DataType) { return nullptr; }
}  // namespace quire::runner::kernels

#endif
