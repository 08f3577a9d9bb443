#include "runner/kernels/cpu_features.h"
#include "runner/kernels/int8_gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

// Everything after this line is compiled for the instruction set; nothing it includes may come later.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avxvnni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avxvnni")
#endif
#define QUIRE_INLINE [[gnu::always_inline]] inline
#define QUIRE_INLINE_LAMBDA __attribute__((always_inline))

namespace quire::runner::kernels {
namespace {

#include "runner/kernels/int8_gemm.inl"
#include "runner/kernels/int8_gemm_avx2.inl"

// Bytes times signed bytes, four at a time, without the detour over 16 bits.
struct AvxVnni : Avx2 {
  static constexpr int kRowsMax = 6;  // 6 sums, 6 dots, a weight and a row's bytes: 14 of 16 registers
  static constexpr bool kSignedWeights = false;
  // Only small scales cost more than the making of chunks.
  template <PanelFormat kFormat>
  static constexpr size_t kManyRows = kFormat.group == 0 ? 0 : 13;
  static constexpr size_t kChunk = 256;  // more was not measured
  template <PanelFormat>
  static constexpr int kChunkRows = 6;

  template <bool>
  QUIRE_INLINE static Int PrepareWeight(Int quants) {
    return quants;
  }
  QUIRE_INLINE static Int Dot(Int sum, Int weight, const int8_t* x) {
    return _mm256_dpbusd_avx_epi32(sum, weight, Four(x));
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
namespace {

bool Usable() { return Int8GemmAvx2(weights::DataType::kQ8_0) != nullptr && HasAvxVnni(); }

}  // namespace

Int8Gemm* Int8GemmAvxVnni(weights::DataType type) { return Usable() ? Int8GemmOf<AvxVnni>(type) : nullptr; }

}  // namespace quire::runner::kernels

#else

namespace quire::runner::kernels {
Int8Gemm* Int8GemmAvxVnni(weights::DataType) { return nullptr; }
}  // namespace quire::runner::kernels

#endif
