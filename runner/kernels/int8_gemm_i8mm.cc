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
  // Zipped once, weights save more: 3 to 11 cycles per row of a Neoverse V2, where unpacking takes 16 to 36.
  template <PanelFormat>
  static constexpr size_t kManyRows = 8;

  using RowVector = int8x16_t;
  QUIRE_INLINE static RowVector LoadRow(const int8_t* x) { return vld1q_s8(x); }
  template <size_t kLane>
  QUIRE_INLINE static Int DotLane(Int sum, Int weight, RowVector row) {
    return {{vdotq_laneq_s32(sum.half[0], vreinterpretq_s8_s32(weight.half[0]), row, kLane),
             vdotq_laneq_s32(sum.half[1], vreinterpretq_s8_s32(weight.half[1]), row, kLane)}};
  }

  // The weights of 8 elements, two outputs each.
  struct ZippedWeights {
    int8x16_t two[4];
  };
  // `first` has elements 0 to 3 of each output, `second` 4 to 7.
  QUIRE_INLINE static ZippedWeights Zip(Int first, Int second) {
    const auto zip = [](int32x4_t a, int32x4_t b)
                         QUIRE_INLINE_LAMBDA { return vreinterpretq_s8_s32(vzip1q_s32(a, b)); };
    const auto zip_high = [](int32x4_t a, int32x4_t b)
                              QUIRE_INLINE_LAMBDA { return vreinterpretq_s8_s32(vzip2q_s32(a, b)); };
    return {{zip(first.half[0], second.half[0]), zip_high(first.half[0], second.half[0]),
             zip(first.half[1], second.half[1]), zip_high(first.half[1], second.half[1])}};
  }
  // They take the place of two vectors.
  QUIRE_INLINE static void StoreZipped(ZippedWeights weights, Int* to) {
    for (size_t i = 0; i < 4; ++i) to[i / 2].half[i % 2] = vreinterpretq_s32_s8(weights.two[i]);
  }
  QUIRE_INLINE static ZippedWeights LoadZipped(const Int* from) {
    const auto at = [&](size_t i)
                        QUIRE_INLINE_LAMBDA { return vreinterpretq_s8_s32(from[i / 2].half[i % 2]); };
    return {{at(0), at(1), at(2), at(3)}};
  }
  // The first operand of Zip() or, with kSecond, the second.
  template <bool kSecond>
  QUIRE_INLINE static Int Unzip(const Int* from) {
    const auto part = [](Int of) QUIRE_INLINE_LAMBDA {
      return kSecond ? vuzp2q_s32(of.half[0], of.half[1]) : vuzp1q_s32(of.half[0], of.half[1]);
    };
    return {{part(from[0]), part(from[1])}};
  }
  // Integer sums of two rows begin with a number for each row. Until FinishPair() row `a` has the sums of
  // both rows with outputs 0 to 3, `b` with 4 to 7: of each two outputs first those of the one row, then
  // those of the other.
  QUIRE_INLINE static void StartPair(Int* a, Int* b) {
    const int32x4_t start = vcombine_s32(vget_low_s32(a->half[0]), vget_low_s32(b->half[0]));
    *a = {{start, start}};
    *b = *a;
  }
  // Float sums of two rows may have any values.
  QUIRE_INLINE static void StartPair(Float* a, Float* b) {
    const Float first = *a, second = *b;
    *a = Interleave(first.half[0], second.half[0]);
    *b = Interleave(first.half[1], second.half[1]);
  }
  // Scales of 8 outputs for the sums of pairs.
  QUIRE_INLINE static void ForPair(Float scale, Float* a, Float* b) {
    *a = Interleave(scale.half[0], scale.half[0]);
    *b = Interleave(scale.half[1], scale.half[1]);
  }
  // A number of each row of a pair.
  QUIRE_INLINE static Float SetPair(const float* rows) {
    const float32x4_t two = vcombine_f32(vld1_f32(rows), vdup_n_f32(0));
    const float32x4_t each = vzip1q_f32(two, two);
    return {{each, each}};
  }
  // Elements 0 to 7 of two rows, and 8 to 15.
  struct PairVector {
    int8x16_t half[2];
  };
  // x: 16 elements of each row, kKBlock apart.
  QUIRE_INLINE static PairVector LoadRowPair(const int8_t* x) {
    const int64x2_t first = vreinterpretq_s64_s8(vld1q_s8(x));
    const int64x2_t second = vreinterpretq_s64_s8(vld1q_s8(x + kKBlock));
    return {
        {vreinterpretq_s8_s64(vzip1q_s64(first, second)), vreinterpretq_s8_s64(vzip2q_s64(first, second))}};
  }
  template <size_t kHalf>
  QUIRE_INLINE static void DotPair(const ZippedWeights& weight, const PairVector& x, Int* a, Int* b) {
    const int8x16_t rows = x.half[kHalf];
    a->half[0] = vmmlaq_s32(a->half[0], rows, weight.two[0]);
    a->half[1] = vmmlaq_s32(a->half[1], rows, weight.two[1]);
    b->half[0] = vmmlaq_s32(b->half[0], rows, weight.two[2]);
    b->half[1] = vmmlaq_s32(b->half[1], rows, weight.two[3]);
  }
  QUIRE_INLINE static void FinishPair(Int* a, Int* b) {
    const Float first = AsFloats(*a), second = AsFloats(*b);
    *a = AsWords(RowOf<false>(first, second));
    *b = AsWords(RowOf<true>(first, second));
  }
  QUIRE_INLINE static void FinishPair(Float* a, Float* b) {
    const Float first = *a, second = *b;
    *a = RowOf<false>(first, second);
    *b = RowOf<true>(first, second);
  }

 private:
  // Interleaves two outputs each: first the one operand's, then the other's.
  QUIRE_INLINE static Float Interleave(float32x4_t first, float32x4_t second) {
    const float64x2_t a = vreinterpretq_f64_f32(first), b = vreinterpretq_f64_f32(second);
    return {{vreinterpretq_f32_f64(vzip1q_f64(a, b)), vreinterpretq_f32_f64(vzip2q_f64(a, b))}};
  }
  // The sums of a pair's first or second row.
  template <bool kSecond>
  QUIRE_INLINE static Float RowOf(Float a, Float b) {
    const auto part = [](Float of) QUIRE_INLINE_LAMBDA {
      const float64x2_t low = vreinterpretq_f64_f32(of.half[0]), high = vreinterpretq_f64_f32(of.half[1]);
      return vreinterpretq_f32_f64(kSecond ? vzip2q_f64(low, high) : vzip1q_f64(low, high));
    };
    return {{part(a), part(b)}};
  }
  QUIRE_INLINE static Float AsFloats(Int a) {
    return {{vreinterpretq_f32_s32(a.half[0]), vreinterpretq_f32_s32(a.half[1])}};
  }
  QUIRE_INLINE static Int AsWords(Float a) {
    return {{vreinterpretq_s32_f32(a.half[0]), vreinterpretq_s32_f32(a.half[1])}};
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
