#include "runner/kernels/int8_gemm.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "runner/kernels/amx_tiles.h"

// Everything after this line is compiled for the instruction set; nothing it includes may come later.
#if defined(__clang__)
#pragma clang attribute push(                                                                      \
    __attribute__((                                                                                \
        target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c,amx-tile,amx-int8"))), \
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

// The processor's tiles. Not by intrinsics: those of gcc 12 do not say that a load reads memory.
class TileUnit {
 public:
  QUIRE_INLINE void Configure(const TileShape& shape) {
    __asm__ volatile("ldtilecfg %0" : : "m"(shape) : "memory");
  }
  QUIRE_INLINE void Release() { __asm__ volatile("tilerelease" : : : "memory"); }
  template <int kTile>
  QUIRE_INLINE void Zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile) : "memory");
  }
  template <int kTile>
  QUIRE_INLINE void Load(const void* from, size_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  QUIRE_INLINE void Store(void* to, size_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kSum, int kA, int kB>
  QUIRE_INLINE void DotSigned() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB) : "memory");
  }
};

#include "runner/kernels/int8_gemm_amx.inl"

}  // namespace
}  // namespace quire::runner::kernels
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace quire::runner::kernels {
namespace {

constexpr unsigned kAmxTile = 1U << 24, kAmxInt8 = 1U << 25;  // CPUID leaf 7, EDX
constexpr unsigned kTileStates = 3U << 17;                    // XCR0: configuration and data

bool CpuHasTiles() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kAmxTile) == 0 || (edx & kAmxInt8) == 0) return false;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & bit_OSXSAVE) == 0) return false;
  __asm__("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return (eax & kTileStates) == kTileStates;
}

// Linux gives the state of tiles to processes that ask for it, once, for all threads. A confined runner that
// did not ask before is refused, and multiplies with AVX-512.
bool MayUseTiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool Usable() {
  static const bool usable =
      Int8GemmAvx512(weights::DataType::kQ8_0) != nullptr && CpuHasTiles() && MayUseTiles();
  return usable;
}

}  // namespace

Int8Gemm* Int8GemmAmx(weights::DataType type) { return Usable() ? Int8GemmOf<Amx<TileUnit>>(type) : nullptr; }

}  // namespace quire::runner::kernels

#else

namespace quire::runner::kernels {
Int8Gemm* Int8GemmAmx(weights::DataType) { return nullptr; }
}  // namespace quire::runner::kernels

#endif
