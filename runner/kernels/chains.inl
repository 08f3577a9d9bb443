// Products with weights read in place on targets without kernels for panels: sums in chains. Compiled once
// per SIMD target.
//
// A chain adds kChain inputs in order, beginning with zero; the chains of an output are added in order. So
// many inputs are also what one call of a BLAS adds in a chain, which may therefore take any part of a
// product (blas.h).

#if defined(QUIRE_RUNNER_KERNELS_CHAINS_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_RUNNER_KERNELS_CHAINS_INL_
#undef QUIRE_RUNNER_KERNELS_CHAINS_INL_
#else
#define QUIRE_RUNNER_KERNELS_CHAINS_INL_
#endif

#include <algorithm>
#include <cstddef>

#include "runner/kernels/blas.h"
#include "runner/kernels/matmul.h"
#include "runner/kernels/rows.inl"
#include "runner/weights/block_formats.h"

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

// Whether products with weights in place are sums in chains. Where panels have kernels, they are sums of
// kSumLanes.
#if HWY_TARGET <= HWY_AVX2 || HWY_TARGET == HWY_NEON
constexpr bool kInChains = false;
#else
constexpr bool kInChains = true;
#endif

template <class Row>
void DequantizeBlocksOf(const std::byte* data, size_t count, float* to) {
  const Row from{data};
  const size_t blocks = count / Row::kBlock;
  for (size_t b = 0; b < blocks; ++b) {
    const typename Row::Block block = from.At(b);
    for (size_t j = 0; j < Row::kBlock; j += kLanes)
      hn::StoreU(block.Load(j), F32(), to + b * Row::kBlock + j);
  }
  for (size_t i = blocks * Row::kBlock; i < count; ++i) to[i] = from.ToFloat32(i);
}

// Inputs [begin, begin + count) of output `out` as float32. REQUIRES: begin is a multiple of kChain, and so
// is count unless the row ends there.
inline void DequantizeInputs(const Matrix& w, size_t out, size_t begin, size_t count, float* to) {
  const std::byte* const data =
      w.data + out * weights::RowBytes(w.type, w.in) + weights::RowBytes(w.type, static_cast<int64_t>(begin));
  switch (w.type) {
    case weights::DataType::kF32:
      return DequantizeBlocksOf<F32Row>(data, count, to);
    case weights::DataType::kF16:
      return DequantizeBlocksOf<F16Row>(data, count, to);
    case weights::DataType::kBF16:
      return DequantizeBlocksOf<BF16Row>(data, count, to);
    case weights::DataType::kQ8_0:
      return DequantizeBlocksOf<Q8Row>(data, count, to);
    default:
      return weights::Dequantize(w.type, data, static_cast<int64_t>(count), to);
  }
}

#if HWY_TARGET <= HWY_AVX2 || HWY_TARGET == HWY_NEON
// Never called: there is no vector of another width to compile for.
inline void ChainRange(const float*, size_t, const Matrix&, size_t, size_t, size_t, float*) {}
#else
// A tile: 12 of 16 registers are sums where a vector has four numbers.
constexpr size_t kChainOuts = 8, kChainRows = 6, kChainVectors = kChainOuts / kLanes;
constexpr size_t kAloneOuts = 8;  // of one row

#if HWY_TARGET != HWY_SCALAR
// Four vectors of four numbers each, transposed in place.
HWY_INLINE void Transpose4(VF32* v) {
  static_assert(kLanes == 4);
  const F32 d;
  const hn::Repartition<double, F32> d64;
  const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d, v[0], v[1]));
  const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d, v[0], v[1]));
  const auto ce_low = hn::BitCast(d64, hn::InterleaveLower(d, v[2], v[3]));
  const auto ce_high = hn::BitCast(d64, hn::InterleaveUpper(d, v[2], v[3]));
  v[0] = hn::BitCast(d, hn::InterleaveLower(d64, ab_low, ce_low));
  v[1] = hn::BitCast(d, hn::InterleaveUpper(d64, ab_low, ce_low));
  v[2] = hn::BitCast(d, hn::InterleaveLower(d64, ab_high, ce_high));
  v[3] = hn::BitCast(d, hn::InterleaveUpper(d64, ab_high, ce_high));
}
#endif

// to [kChain, kChainOuts] = the transpose of from [kChainOuts, kChain], of `count` numbers each and some
// more.
HWY_INLINE void Turn(const float* from, size_t count, float* to) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t k = 0; k < count; ++k) {
    for (size_t o = 0; o < kChainOuts; ++o) to[k * kChainOuts + o] = from[o * kChain + k];
  }
#else
  const F32 d;
  for (size_t k = 0; k < count; k += 4) {
#pragma GCC unroll 2
    for (size_t o = 0; o < kChainOuts; o += 4) {
      VF32 v[4];
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i) v[i] = hn::LoadU(d, from + (o + i) * kChain + k);
      Transpose4(v);
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i) hn::StoreU(v[i], d, to + (k + i) * kChainOuts + o);
    }
  }
#endif
}

// y [kRows, outs] = or += a chain of each. Rows of x are `in` apart, those of y `stride`.
template <size_t kRows>
HWY_INLINE void ChainTile(const float* HWY_RESTRICT x, size_t in, const float* HWY_RESTRICT turned,
                          size_t count, bool adds, size_t outs, float* HWY_RESTRICT y, size_t stride) {
  const F32 d;
  VF32 sum[kRows][kChainVectors];
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kChainVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  for (size_t k = 0; k < count; ++k) {
    VF32 weight[kChainVectors];
#pragma GCC unroll 8
    for (size_t v = 0; v < kChainVectors; ++v) weight[v] = hn::Load(d, turned + k * kChainOuts + v * kLanes);
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      const VF32 activation = hn::Set(d, x[r * in + k]);
#pragma GCC unroll 8
      for (size_t v = 0; v < kChainVectors; ++v) sum[r][v] = hn::MulAdd(activation, weight[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    alignas(64) float chain[kChainOuts];
#pragma GCC unroll 8
    for (size_t v = 0; v < kChainVectors; ++v) hn::Store(sum[r][v], d, chain + v * kLanes);
    float* const to = y + r * stride;
    for (size_t o = 0; o < outs; ++o) to[o] = adds ? to[o] + chain[o] : chain[o];
  }
}

#if HWY_TARGET != HWY_SCALAR
// y [outs] = or += a chain of each of one row, without a copy of the weights. `weights` are where the chain's
// first input lies. More outputs at once would be rows of weights that compete for the same cache sets (F32:
// 6.8 instead of 11.8 GFLOP/s).
template <class Row>
HWY_INLINE void ChainOfOneRow(const float* HWY_RESTRICT x, const std::byte* HWY_RESTRICT weights,
                              size_t row_bytes, size_t count, bool adds, size_t outs, float* HWY_RESTRICT y) {
  const F32 d;
  Row rows[kAloneOuts];
  for (size_t o = 0; o < kAloneOuts; ++o) rows[o].data = weights + std::min(o, outs - 1) * row_bytes;
  VF32 sum[kAloneOuts / 4];
#pragma GCC unroll 4
  for (VF32& s : sum) s = hn::Zero(d);
  const size_t blocks = count / Row::kBlock;
  for (size_t b = 0; b < blocks; ++b) {
    typename Row::Block block[kAloneOuts];
#pragma GCC unroll 16
    for (size_t o = 0; o < kAloneOuts; ++o) block[o] = rows[o].At(b);
    for (size_t j = 0; j < Row::kBlock; j += 4) {
      const float* const at = x + b * Row::kBlock + j;
#pragma GCC unroll 4
      for (size_t g = 0; g < kAloneOuts / 4; ++g) {
        VF32 v[4];
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; ++i) v[i] = block[4 * g + i].Load(j);
        Transpose4(v);
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; ++i) sum[g] = hn::MulAdd(hn::Set(d, at[i]), v[i], sum[g]);
      }
    }
  }
  for (size_t k = blocks * Row::kBlock; k < count; ++k) {
    alignas(16) float weight[kAloneOuts];
    for (size_t o = 0; o < kAloneOuts; ++o) weight[o] = rows[o].ToFloat32(k);
#pragma GCC unroll 4
    for (size_t g = 0; g < kAloneOuts / 4; ++g) {
      sum[g] = hn::MulAdd(hn::Set(d, x[k]), hn::Load(d, weight + 4 * g), sum[g]);
    }
  }
  alignas(16) float chain[kAloneOuts];
#pragma GCC unroll 4
  for (size_t g = 0; g < kAloneOuts / 4; ++g) hn::Store(sum[g], d, chain + 4 * g);
  for (size_t o = 0; o < outs; ++o) y[o] = adds ? y[o] + chain[o] : chain[o];
}

// For weights of a type without vectors of its own: dequantized before.
inline void DequantizedChainOfOneRow(const float* x, const Matrix& w, size_t out, size_t k, size_t count,
                                     size_t outs, float* y) {
  alignas(64) float plain[kAloneOuts * kChain];
  for (size_t o = 0; o < outs; ++o) DequantizeInputs(w, out + o, k, count, plain + o * kChain);
  ChainOfOneRow<F32Row>(x + k, reinterpret_cast<const std::byte*>(plain), kChain * sizeof(float), count,
                        k > 0, outs, y + out);
}

// As ChainRange of one row.
inline void OneRowInChains(const float* x, const Matrix& w, size_t out_begin, size_t out_end, size_t in_begin,
                           float* y) {
  const auto in = static_cast<size_t>(w.in);
  const size_t row_bytes = weights::RowBytes(w.type, w.in);
  for (size_t out = out_begin; out < out_end; out += kAloneOuts) {
    const size_t outs = std::min(kAloneOuts, out_end - out);
    for (size_t k = in_begin; k < in; k += kChain) {
      const size_t count = std::min(kChain, in - k);
      const std::byte* const at =
          w.data + out * row_bytes + weights::RowBytes(w.type, static_cast<int64_t>(k));
      switch (w.type) {
        case weights::DataType::kF32:
          ChainOfOneRow<F32Row>(x + k, at, row_bytes, count, k > 0, outs, y + out);
          break;
        case weights::DataType::kF16:
          ChainOfOneRow<F16Row>(x + k, at, row_bytes, count, k > 0, outs, y + out);
          break;
        case weights::DataType::kBF16:
          ChainOfOneRow<BF16Row>(x + k, at, row_bytes, count, k > 0, outs, y + out);
          break;
        case weights::DataType::kQ8_0:
          ChainOfOneRow<Q8Row>(x + k, at, row_bytes, count, k > 0, outs, y + out);
          break;
        default:
          DequantizedChainOfOneRow(x, w, out, k, count, outs, y);
      }
    }
  }
}
#endif

// Outputs [out_begin, out_end) of all rows from input `in_begin` on, a multiple of kChain: added to y unless
// that is zero.
inline void ChainRange(const float* x, size_t rows, const Matrix& w, size_t out_begin, size_t out_end,
                       size_t in_begin, float* y) {
#if HWY_TARGET != HWY_SCALAR
  if (rows == 1) return OneRowInChains(x, w, out_begin, out_end, in_begin, y);
#endif
  const auto in = static_cast<size_t>(w.in), stride = static_cast<size_t>(w.out);
  alignas(64) float plain[kChainOuts * kChain] = {}, turned[kChain * kChainOuts];
  for (size_t out = out_begin; out < out_end; out += kChainOuts) {
    const size_t outs = std::min(kChainOuts, out_end - out);
    for (size_t k = in_begin; k < in; k += kChain) {
      const size_t count = std::min(kChain, in - k);
      for (size_t o = 0; o < outs; ++o) DequantizeInputs(w, out + o, k, count, plain + o * kChain);
      Turn(plain, count, turned);
      const auto tile = [&]<size_t kRows>(size_t r) HWY_ATTR {
        ChainTile<kRows>(x + r * in + k, in, turned, count, k > 0, outs, y + r * stride + out, stride);
      };
      size_t r = 0;
      for (; r + kChainRows <= rows; r += kChainRows) tile.template operator()<kChainRows>(r);
      for (; r + 2 <= rows; r += 2) tile.template operator()<2>(r);
      if (r < rows) tile.template operator()<1>(r);
    }
  }
}
#endif

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
