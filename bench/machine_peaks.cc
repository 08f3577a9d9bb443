#include "bench/machine_peaks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>

#include "runner/kernels/amx_tiles.h"
#endif

#include "runner/kernels/int8_gemm.h"

namespace quire::bench {
namespace {

using Clock = std::chrono::steady_clock;

template <class Fn>
double BestSeconds(int repeats, const Fn& fn) {
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = Clock::now();
    fn();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

double ReadPeak(runner::ThreadPool& pool) {
  constexpr size_t kWords = size_t{64} << 20;  // of 8 bytes
  std::vector<uint64_t> memory(kWords, 1);
  const auto parts = static_cast<size_t>(pool.threads()) * 4;
  std::atomic<uint64_t> sink = 0;
  const double seconds = BestSeconds(5, [&] {
    pool.ParallelFor(parts, [&](size_t part) {
      const uint64_t* const end = memory.data() + kWords / parts * (part + 1);
      uint64_t sums[8] = {};
      for (const uint64_t* at = memory.data() + kWords / parts * part; at + 8 <= end; at += 8) {
        for (size_t i = 0; i < 8; ++i) sums[i] += at[i];
      }
      for (const uint64_t sum : sums) sink += sum;
    });
  });
  return static_cast<double>(kWords * 8) / seconds / 1e9;
}

#if defined(__x86_64__)
// Short runs, of which the best counts: one of them is not interrupted even on a busy machine.
constexpr int kChains = 12, kRounds = 50'000, kRuns = 200;

__attribute__((target("avx512f,avx512vnni"))) int32_t DotChains512() {
  __m512i sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_epi32(i);
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  for (int round = 0; round < kRounds; ++round) {
    __asm__ volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
  }
  __m512i all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm512_add_epi32(all, sums[i]);
  alignas(64) int32_t lanes[16];
  _mm512_store_si512(lanes, all);
  return lanes[0];
}

__attribute__((target("avx2"))) int32_t SumOf(const __m256i* sums) {
  __m256i all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm256_add_epi32(all, sums[i]);
  return _mm256_extract_epi32(all, 0);
}

__attribute__((target("avx2,avxvnni"))) int32_t DotChainsVnni() {
  __m256i sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_epi32(i);
  __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
  for (int round = 0; round < kRounds; ++round) {
    __asm__ volatile("" : "+x"(a), "+x"(b));
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm256_dpbusd_avx_epi32(sums[i], a, b);
  }
  return SumOf(sums);
}

__attribute__((target("avx2"))) int32_t DotChains256() {
  __m256i sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_epi32(i);
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      __asm__ volatile("" : "+x"(a), "+x"(b));  // otherwise one product would serve all chains
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
  }
  return SumOf(sums);
}

__attribute__((target("avx512f"))) float FloatChains512() {
  __m512 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  __m512 a = _mm512_set1_ps(0.5F), b = _mm512_set1_ps(0.25F);
  for (int round = 0; round < kRounds; ++round) {
    __asm__ volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_fmadd_ps(a, b, sums[i]);
  }
  __m512 all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm512_add_ps(all, sums[i]);
  return _mm512_cvtss_f32(all);
}

__attribute__((target("avx2,fma"))) float FloatChains256() {
  __m256 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  __m256 a = _mm256_set1_ps(0.5F), b = _mm256_set1_ps(0.25F);
  for (int round = 0; round < kRounds; ++round) {
    __asm__ volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm256_fmadd_ps(a, b, sums[i]);
  }
  __m256 all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm256_add_ps(all, sums[i]);
  return _mm256_cvtss_f32(all);
}

// Products of tiles of 16 rows, 16 outputs and the 32 inputs of a K block.
constexpr int kTileChains = 4;
constexpr double kTileOps = 2.0 * 16 * 16 * 32;

int32_t DotTiles() {
  runner::kernels::TileShape shape;
  for (int t = 0; t < kTileChains; ++t) shape.Set(t, 16, 64);
  shape.Set(4, 16, 32);
  shape.Set(5, 8, 64);
  __asm__ volatile("ldtilecfg %0" : : "m"(shape) : "memory");  // all tiles are then zero
  for (int round = 0; round < kRounds; ++round) {
    __asm__ volatile(
        "tdpbssd %%tmm5, %%tmm4, %%tmm0\n\ttdpbssd %%tmm5, %%tmm4, %%tmm1\n\t"
        "tdpbssd %%tmm5, %%tmm4, %%tmm2\n\ttdpbssd %%tmm5, %%tmm4, %%tmm3"
        :
        :
        : "memory");
  }
  __asm__ volatile("tilerelease" : : : "memory");
  return 0;
}

double FloatPeak(runner::ThreadPool& pool) {
  const bool wide = __builtin_cpu_supports("avx512f");
  if (!wide && !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) return 0;
  std::atomic<float> sink = 0;
  const auto threads = static_cast<size_t>(pool.threads());
  const double seconds = BestSeconds(kRuns, [&] {
    pool.ParallelFor(threads, [&](size_t) { sink = sink + (wide ? FloatChains512() : FloatChains256()); });
  });
  return static_cast<double>(threads) * kChains * kRounds * (wide ? 32 : 16) / seconds / 1e9;
}

// A loop of products in registers, and the operations of a call.
struct Int8Loop {
  int32_t (*run)();
  double ops;
};

Int8Loop Int8LoopOf(runner::kernels::PanelTarget target) {
  using runner::kernels::PanelTarget;
  constexpr double kVectors = double{kChains} * kRounds;
  switch (target) {
    case PanelTarget::kAmx:
      return {DotTiles, double{kTileChains} * kRounds * kTileOps};
    case PanelTarget::kAvx512:
      return {DotChains512, kVectors * 128};
    case PanelTarget::kAvxVnni:
      return {DotChainsVnni, kVectors * 64};
    case PanelTarget::kAvx2:
      return {DotChains256, kVectors * 64};
    default:
      return {nullptr, 0};
  }
}

double Int8Peak(runner::ThreadPool& pool) {
  const Int8Loop loop = Int8LoopOf(runner::kernels::BestPanelTarget());
  if (loop.run == nullptr) return 0;
  std::atomic<int64_t> sink = 0;
  const auto threads = static_cast<size_t>(pool.threads());
  const double seconds =
      BestSeconds(kRuns, [&] { pool.ParallelFor(threads, [&](size_t) { sink += loop.run(); }); });
  return static_cast<double>(threads) * loop.ops / seconds / 1e9;
}
#else
double Int8Peak(runner::ThreadPool&) { return 0; }
double FloatPeak(runner::ThreadPool&) { return 0; }
#endif

}  // namespace

MachinePeaks MeasurePeaks(runner::ThreadPool& pool) {
  return {ReadPeak(pool), Int8Peak(pool), FloatPeak(pool)};
}

}  // namespace quire::bench
