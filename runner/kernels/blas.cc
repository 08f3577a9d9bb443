#include "runner/kernels/blas.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "runner/kernels/float_panels.h"
#include "runner/kernels/matmul.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {
namespace {

using Sgemm = void(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                   const float* a, int a_stride, const float* b, int b_stride, float beta, float* c,
                   int c_stride);

Sgemm* sgemm = nullptr;
std::atomic<size_t> rows_min = 0;

// The library's product, if it may be called by several threads at once. libopenblas0-serial of Debian 12 may
// not be: it has no locks, threads share its buffers, and one of a hundred products was wrong.
Sgemm* LoadSgemm() {
#ifdef QUIRE_BLAS_LIBRARY
  ::setenv("OPENBLAS_NUM_THREADS", "1", 1);  // its own threads; it starts them when it is loaded
  void* const library = ::dlopen(QUIRE_BLAS_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  const auto is_parallel = reinterpret_cast<int (*)()>(::dlsym(library, "openblas_get_parallel"));
  if (is_parallel == nullptr || is_parallel() == 0) return nullptr;
  return reinterpret_cast<Sgemm*>(::dlsym(library, "cblas_sgemm"));
#else
  return nullptr;
#endif
}

// A product by the chains, and parts of it by the library.
class Comparison {
 public:
  Comparison()
      : w_(kBlasOuts * kIn),
        chain_w_(kBlasOuts * kChain),
        x_(kBlasRows * kIn),
        chains_(kBlasRows * kBlasOuts),
        blas_(chains_.size()) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::ranges::generate(chain_w_, [&] { return uniform(random); });
    for (size_t i = 0; i < w_.size(); ++i) w_[i] = chain_w_[i / kIn * kChain + i % kChain];
    std::ranges::generate(x_, [&] { return uniform(random); });
  }

  bool HaveEqualBits() {
    ByChains(kBlasRows);
    for (size_t rows = 1; rows <= kBlasRows; ++rows) {
      // Each row at every place of a call, as far as there are rows before it.
      for (const size_t first : {size_t{0}, kBlasRows - rows}) {
        std::ranges::fill(blas_, std::numeric_limits<float>::quiet_NaN());
        ByBlas(first, rows);
        if (std::memcmp(chains_.data() + first * kBlasOuts, blas_.data(), rows * kBlasOuts * sizeof(float)) !=
            0) {
          return false;
        }
      }
    }
    return true;
  }

  // The least number of rows from which on the library is faster; 0: it never is.
  size_t FasterFrom() {
    size_t from = 0;
    for (const size_t rows : {kBlasRows, size_t{32}, size_t{8}, size_t{4}}) {
      const double chains = LeastTime([&] { ByChains(rows); });
      if (LeastTime([&] { ByBlas(0, rows); }) >= chains) break;
      from = rows;
    }
    return from;
  }

 private:
  static constexpr size_t kIn = 2 * kChain;

  template <class Work>
  static double LeastTime(const Work& work) {
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 5; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      work();
      least =
          std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return least;
  }
  void ByChains(size_t rows) {
    ThreadPool alone(1, {});
    const Matrix w{.data = reinterpret_cast<const std::byte*>(w_.data()), .out = kBlasOuts, .in = kIn};
    MatMul(alone, std::span(x_).first(rows * kIn), static_cast<int64_t>(rows), w,
           std::span(chains_).first(rows * kBlasOuts));
  }
  // As MatMul does, with the weights of the first chain for all of them.
  void ByBlas(size_t first, size_t rows) {
    for (size_t k = 0; k < kIn; k += kChain) {
      CallBlas({.x = x_.data() + first * kIn + k,
                .rows = rows,
                .x_stride = kIn,
                .w = chain_w_.data(),
                .y = blas_.data(),
                .y_stride = kBlasOuts,
                .adds = k > 0});
    }
  }

  std::vector<float> w_, chain_w_, x_, chains_, blas_;
};

}  // namespace

size_t BlasRowsMin() { return rows_min.load(std::memory_order_relaxed); }

void UseBlasFrom(size_t rows) { rows_min = sgemm == nullptr ? 0 : rows; }

namespace {

// The library leaves the upper halves of registers set, after which vectors of 16 bytes take three times as
// long.
void ClearUpperHalves() {
#if defined(__x86_64__)
  static const bool has_halves = __builtin_cpu_supports("avx");
  if (has_halves) __asm__ volatile("vzeroupper" ::: "memory");
#endif
}

}  // namespace

void CallBlas(const BlasCall& call) {
  constexpr int kRowMajor = 101, kAsItIs = 111, kTransposed = 112;
  sgemm(kRowMajor, kAsItIs, kTransposed, static_cast<int>(call.rows), static_cast<int>(kBlasOuts),
        static_cast<int>(kChain), 1, call.x, static_cast<int>(call.x_stride), call.w,
        static_cast<int>(kChain), call.adds ? 1.0F : 0.0F, call.y, static_cast<int>(call.y_stride));
  ClearUpperHalves();
}

std::string ChooseBlas() {
  if (UsePackedFloat()) return {};
  rows_min = 0;
  sgemm = LoadSgemm();
  if (sgemm == nullptr) return "no OpenBLAS (libopenblas0-pthread): our own products";
  Comparison comparison;
  if (!comparison.HaveEqualBits()) return "OpenBLAS computes other bits here than Quire: not used";
  rows_min = comparison.FasterFrom();
  if (rows_min == 0) return "OpenBLAS is slower here than Quire: not used";
  return fmt::format("OpenBLAS multiplies {} rows and more", rows_min.load());
}

}  // namespace quire::runner::kernels
