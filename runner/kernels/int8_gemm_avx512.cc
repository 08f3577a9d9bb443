#include "runner/kernels/int8_gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

// Everything after this line is compiled for the instruction set; nothing it includes may come later.
#if defined(__clang__)
#pragma clang attribute push(                                                               \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")
#endif
#define QUIRE_INLINE [[gnu::always_inline]] inline
#define QUIRE_INLINE_LAMBDA __attribute__((always_inline))

namespace quire::runner::kernels {
namespace {

#include "runner/kernels/int8_gemm.inl"
#include "runner/kernels/int8_gemm_avx512.inl"

}  // namespace
}  // namespace quire::runner::kernels
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace quire::runner::kernels {
namespace {

bool Usable() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

}  // namespace

Int8Gemm* Int8GemmAvx512(weights::DataType type) { return Usable() ? Int8GemmOf<Avx512>(type) : nullptr; }

}  // namespace quire::runner::kernels

#else

namespace quire::runner::kernels {
Int8Gemm* Int8GemmAvx512(weights::DataType) { return nullptr; }
}  // namespace quire::runner::kernels

#endif
