// Rows of any element type read in place as float32 vectors, and the tile of dot products that matrix
// multiplication and attention scores share. Compiled once per SIMD target.
//
// The order of additions in a dot product depends on its length only: sum l of kSumLanes adds the products of
// elements l, l + kSumLanes, ... in order, then the sums are added in a fixed tree. How many rows or outputs
// a tile holds does not enter, which is what makes results independent of batch shape, chunking and threads.
// Nor does the vector width, so every target with fused multiply-adds has the same results.

#if defined(QUIRE_RUNNER_KERNELS_ROWS_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_RUNNER_KERNELS_ROWS_INL_
#undef QUIRE_RUNNER_KERNELS_ROWS_INL_
#else
#define QUIRE_RUNNER_KERNELS_ROWS_INL_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;
constexpr size_t kLanes = hn::MaxLanes(F32());

// Sums that what is added over lanes has on every target, and their vectors.
constexpr size_t kSumLanes = 16;
constexpr size_t kSumVectors = kSumLanes / kLanes;

// Whether the target has 32 vector registers rather than 16.
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON;

// Vectors from addresses of any alignment.
template <class D>
HWY_INLINE hn::Vec<D> LoadAt(D d, const std::byte* from) {
#if HWY_TARGET == HWY_SCALAR
  hn::TFromD<D> value;
  std::memcpy(&value, from, sizeof(value));
  return hn::Set(d, value);
#else
  return hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(from));
#endif
}

// The first `count` floats of a vector, the other lanes zero.
HWY_INLINE VF32 LoadFirst(const float* from, size_t count) {
  alignas(64) float lanes[kLanes] = {};
  for (size_t i = 0; i < kLanes && i < count; ++i) lanes[i] = from[i];
  return hn::Load(F32(), lanes);
}

HWY_INLINE void StoreFirst(VF32 v, float* to, size_t count) {
  alignas(64) float lanes[kLanes];
  hn::Store(v, F32(), lanes);
  for (size_t i = 0; i < kLanes && i < count; ++i) to[i] = lanes[i];
}

// to[i] = f(i-th elements) for `count` elements; f maps vectors lane by lane, so that an element's result
// does not depend on where it stands. Each `from` may be `to`.
template <class F, class... From>
HWY_INLINE void ForEachElement(size_t count, float* to, F f, const From*... from) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(f(hn::LoadU(F32(), from + i)...), F32(), to + i);
  if (i < count) StoreFirst(f(LoadFirst(from + i, count - i)...), to + i, count - i);
}

// A reader per element type. A row is read in blocks of kBlock elements; kBlock is a multiple of kSumLanes.
// ToFloat32() gives element i of the row, for the elements behind the last whole block.
struct F32Row {
  static constexpr size_t kBlock = kSumLanes;
  struct Block {
    const std::byte* at;
    HWY_INLINE VF32 Load(size_t i) const { return LoadAt(F32(), at + i * 4); }
  };
  const std::byte* data;
  HWY_INLINE Block At(size_t block) const { return {data + block * kBlock * 4}; }
  static size_t Bytes(size_t elements) { return elements * 4; }
  float ToFloat32(size_t i) const {
    float value;
    std::memcpy(&value, data + i * 4, 4);
    return value;
  }
};

template <class Half>  // hwy::float16_t or hwy::bfloat16_t
struct HalfRow {
  static constexpr size_t kBlock = kSumLanes;
  struct Block {
    const std::byte* at;
    HWY_INLINE VF32 Load(size_t i) const {
      return hn::PromoteTo(F32(), LoadAt(hn::Rebind<Half, F32>(), at + i * 2));
    }
  };
  const std::byte* data;
  HWY_INLINE Block At(size_t block) const { return {data + block * kBlock * 2}; }
  static size_t Bytes(size_t elements) { return elements * 2; }
  float ToFloat32(size_t i) const {
    const hn::CappedTag<float, 1> one;
    return hn::GetLane(hn::PromoteTo(one, LoadAt(hn::Rebind<Half, decltype(one)>(), data + i * 2)));
  }
};
using F16Row = HalfRow<hwy::float16_t>;
using BF16Row = HalfRow<hwy::bfloat16_t>;

// Blocks of 32: a float16 scale, then 32 int8. Rows are whole blocks. scale * quant is exact in float32.
struct Q8Row {
  static constexpr size_t kBlock = 32;
  static constexpr size_t kBlockBytes = 34;
  struct Block {
    const std::byte* quants;
    float scale;
    HWY_INLINE VF32 Load(size_t i) const {
      const hn::Rebind<int32_t, F32> d32;
      const auto quant = LoadAt(hn::Rebind<int8_t, F32>(), quants + i);
      return hn::Mul(hn::Set(F32(), scale), hn::ConvertTo(F32(), hn::PromoteTo(d32, quant)));
    }
  };
  const std::byte* data;
  HWY_INLINE Block At(size_t block) const {
    const std::byte* at = data + block * kBlockBytes;
    return {at + 2, F16Row{at}.ToFloat32(0)};
  }
  static size_t Bytes(size_t elements) { return elements / kBlock * kBlockBytes; }
  float ToFloat32(size_t i) const {
    const Block block = At(i / kBlock);
    return block.scale * static_cast<float>(static_cast<int8_t>(block.quants[i % kBlock]));
  }
};

#if HWY_TARGET != HWY_SCALAR
// Adds the 128-bit blocks of v, halving until one is left.
template <class D>
HWY_INLINE void FoldBlocks(D d, hn::Vec<D> v, float* HWY_RESTRICT to) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(v, d, to);
  } else {
    const hn::Half<D> half;
    FoldBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), to);
  }
}

// Within each 128-bit block, the sums of four vectors side by side: a transpose of 4x4 with additions between
// its two steps.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V BlockSums4(D d, V a, V b, V c, V e) {
  const hn::Repartition<double, D> d64;
  const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const V ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto ab64 = hn::BitCast(d64, ab), ce64 = hn::BitCast(d64, ce);
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, ab64, ce64)),
                 hn::BitCast(d, hn::InterleaveUpper(d64, ab64, ce64)));
}
#endif

// The sums of the lanes of four vectors, side by side.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void StoreSums4(D d, V a, V b, V c, V e, float* HWY_RESTRICT to) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  to[0] = hn::GetLane(a);
  to[1] = hn::GetLane(b);
  to[2] = hn::GetLane(c);
  to[3] = hn::GetLane(e);
#else
  FoldBlocks(d, BlockSums4(d, a, b, c, e), to);
#endif
}

// kSumLanes sums, to which vectors are added in order.
struct LaneSums {
  VF32 part[kSumVectors];

  HWY_INLINE LaneSums() {
#pragma GCC unroll 16
    for (size_t v = 0; v < kSumVectors; ++v) part[v] = hn::Zero(F32());
  }
};

// Adds the upper half of the parts to the lower one until `kLeft` are left.
template <size_t kLeft>
HWY_INLINE void FoldParts(VF32* part) {
#pragma GCC unroll 4
  for (size_t n = kSumVectors / 2; n >= kLeft; n /= 2) {
#pragma GCC unroll 8
    for (size_t i = 0; i < n; ++i) part[i] = hn::Add(part[i], part[i + n]);
  }
}

// All of kSumLanes sums: halves are added until four are left, then these by twos.
HWY_INLINE float TotalOf(VF32* part) {
  alignas(64) float lane[4];
#if HWY_TARGET == HWY_SCALAR
  FoldParts<4>(part);
  for (size_t i = 0; i < 4; ++i) lane[i] = hn::GetLane(part[i]);
#else
  FoldParts<1>(part);
  FoldBlocks(F32(), part[0], lane);
#endif
  return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

// The totals of four, side by side, added in another order than TotalOf(): blocks of four first.
HWY_INLINE void StoreTotals4(const LaneSums& a, const LaneSums& b, const LaneSums& c, const LaneSums& e,
                             float* HWY_RESTRICT to) {
#if HWY_TARGET == HWY_SCALAR
  const LaneSums* const all[] = {&a, &b, &c, &e};
  for (size_t i = 0; i < 4; ++i) {
    VF32 block[4];
    for (size_t n = 0; n < 4; ++n) {
      const VF32* const part = all[i]->part + 4 * n;
      block[n] = hn::Add(hn::Add(part[0], part[2]), hn::Add(part[1], part[3]));
    }
    to[i] = hn::GetLane(hn::Add(hn::Add(block[0], block[2]), hn::Add(block[1], block[3])));
  }
#else
  LaneSums four;
#pragma GCC unroll 16
  for (size_t v = 0; v < kSumVectors; ++v) {
    four.part[v] = BlockSums4(F32(), a.part[v], b.part[v], c.part[v], e.part[v]);
  }
  FoldParts<1>(four.part);
  FoldBlocks(F32(), four.part[0], to);
#endif
}

// The sum over `count` elements of what f(sum, elements) adds to a sum; f maps vectors lane by lane. It takes
// them by reference: gcc 12 fails with an internal error otherwise.
template <class F>
HWY_INLINE float SumOver(const float* x, size_t count, F f) {
  VF32 part[kSumVectors];
#pragma GCC unroll 16
  for (size_t v = 0; v < kSumVectors; ++v) part[v] = hn::Zero(F32());
  size_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
#pragma GCC unroll 16
    for (size_t v = 0; v < kSumVectors; ++v) part[v] = f(part[v], hn::LoadU(F32(), x + i + v * kLanes));
  }
#pragma GCC unroll 16
  for (size_t v = 0; v < kSumVectors; ++v) {
    const size_t at = i + v * kLanes;
    if (at < count) part[v] = f(part[v], LoadFirst(x + at, count - at));
  }
  return TotalOf(part);
}

HWY_INLINE float SumOfSquares(const float* x, size_t size) {
  return SumOver(
      x, size, [](const VF32& sum, const VF32& v) HWY_ATTR { return hn::MulAdd(v, v, sum); });
}

// a * b + c of single numbers as MulAdd() computes it.
HWY_INLINE float MulAddOne(float a, float b, float c) {
#if HWY_NATIVE_FMA
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

// y[r * y_stride + o] = dot(x row r, weight row o) for kRows rows and kOuts (a multiple of 4) outputs.
// Weight rows beyond `outs` (1 <= outs <= kOuts) are not read and their results not written.
template <class Row, int kRows, int kOuts>
HWY_INLINE void DotTile(const float* HWY_RESTRICT x, size_t x_stride, const std::byte* HWY_RESTRICT weights,
                        size_t weight_stride, size_t length, int outs, float* HWY_RESTRICT y,
                        size_t y_stride) {
  static_assert(kOuts % 4 == 0 && Row::kBlock % kSumLanes == 0);
  const F32 d;
  Row rows[kOuts];
  for (int o = 0; o < kOuts; ++o) {
    rows[o].data = weights + static_cast<size_t>(o < outs ? o : outs - 1) * weight_stride;
  }
  LaneSums sum[kRows][kOuts];
  const size_t blocks = length / Row::kBlock;
  for (size_t block = 0; block < blocks; ++block) {
    typename Row::Block weight_block[kOuts];
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) weight_block[o] = rows[o].At(block);
    for (size_t i = 0; i < Row::kBlock; i += kSumLanes) {
#pragma GCC unroll 16
      for (size_t v = 0; v < kSumVectors; ++v) {
        const size_t at = i + v * kLanes;
        VF32 xs[kRows];
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          xs[r] = hn::LoadU(d, x + static_cast<size_t>(r) * x_stride + block * Row::kBlock + at);
        }
#pragma GCC unroll 8
        for (int o = 0; o < kOuts; ++o) {
          const VF32 w = weight_block[o].Load(at);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) sum[r][o].part[v] = hn::MulAdd(xs[r], w, sum[r][o].part[v]);
        }
      }
    }
  }
  const size_t rest = length % Row::kBlock;
  if (Row::kBlock == kSumLanes && rest != 0) {
    alignas(64) float x_rest[kSumLanes] = {}, w_rest[kOuts][kSumLanes] = {};
    const size_t from = length - rest;
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) {
      for (size_t i = 0; i < rest && i < kSumLanes; ++i) w_rest[o][i] = rows[o].ToFloat32(from + i);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      for (size_t i = 0; i < rest && i < kSumLanes; ++i)
        x_rest[i] = x[static_cast<size_t>(r) * x_stride + from + i];
#pragma GCC unroll 16
      for (size_t v = 0; v < kSumVectors; ++v) {
        const VF32 xs = hn::Load(d, x_rest + v * kLanes);
#pragma GCC unroll 8
        for (int o = 0; o < kOuts; ++o) {
          sum[r][o].part[v] = hn::MulAdd(xs, hn::Load(d, w_rest[o] + v * kLanes), sum[r][o].part[v]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; o += 4) {
      float* to = y + static_cast<size_t>(r) * y_stride + o;
      if (outs >= o + 4) {
        StoreTotals4(sum[r][o], sum[r][o + 1], sum[r][o + 2], sum[r][o + 3], to);
      } else if (outs > o) {
        float last[4];
        StoreTotals4(sum[r][o], sum[r][o + 1], sum[r][o + 2], sum[r][o + 3], last);
        std::memcpy(to, last, static_cast<size_t>(outs - o) * sizeof(float));
      }
    }
  }
}

// Dot products of `rows` rows with `outs` weight rows, in tiles that fit the target's registers.
template <class Row>
HWY_INLINE void DotBlock(const float* HWY_RESTRICT x, size_t x_stride, size_t rows,
                         const std::byte* HWY_RESTRICT weights, size_t weight_stride, size_t outs,
                         size_t length, float* HWY_RESTRICT y, size_t y_stride) {
  // 24 sums, 6 activations, a weight: 31 of 32 registers. Narrower vectors have as many sums for one row.
  constexpr int kMaxRows = kSumVectors == 1 ? 6 : 1;
  size_t o = 0;
  if (kMaxRows > 1 && rows == 1) {  // registers are free: more outputs hide the latency of additions
    for (; o + 8 <= outs; o += 8) {
      DotTile<Row, 1, 8>(x, x_stride, weights + o * weight_stride, weight_stride, length, 8, y + o, y_stride);
    }
  }
  for (; o < outs; o += 4) {
    const std::byte* at = weights + o * weight_stride;
    const int some = static_cast<int>(outs - o < 4 ? outs - o : 4);
    size_t r = 0;
    for (; r + kMaxRows <= rows; r += kMaxRows) {
      DotTile<Row, kMaxRows, 4>(x + r * x_stride, x_stride, at, weight_stride, length, some,
                                y + r * y_stride + o, y_stride);
    }
    if constexpr (kMaxRows > 1) {
      for (; r + 2 <= rows; r += 2) {
        DotTile<Row, 2, 4>(x + r * x_stride, x_stride, at, weight_stride, length, some, y + r * y_stride + o,
                           y_stride);
      }
    }
    if (r < rows) {
      DotTile<Row, 1, 4>(x + r * x_stride, x_stride, at, weight_stride, length, some, y + r * y_stride + o,
                         y_stride);
    }
  }
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
