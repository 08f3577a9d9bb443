#include "runner/kernels/int8_gemm.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#include <cstring>

// Everything after this line is compiled for the instruction set; nothing it includes may come later.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
#define QUIRE_INLINE [[gnu::always_inline]] inline
#define QUIRE_INLINE_LAMBDA __attribute__((always_inline))

namespace quire::runner::kernels {
namespace {

#include "runner/kernels/int8_gemm.inl"
#include "runner/kernels/int8_gemm_avx2.inl"

}  // namespace
}  // namespace quire::runner::kernels
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace quire::runner::kernels {
namespace {

bool HasF16c() {  // what __builtin_cpu_supports does not know everywhere
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// Asked once: products ask for every task, and cpuid takes 14 us in a virtual machine, as long as a small
// product.
bool Usable() {
  static const bool usable = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  return usable;
}

}  // namespace

Int8Gemm* Int8GemmAvx2(weights::DataType type) { return Usable() ? Int8GemmOf<Avx2>(type) : nullptr; }

}  // namespace quire::runner::kernels

#else

namespace quire::runner::kernels {
Int8Gemm* Int8GemmAvx2(weights::DataType) { return nullptr; }
}  // namespace quire::runner::kernels

#endif
