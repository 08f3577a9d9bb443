#include "runner/kernels/float_panels.h"

#include <algorithm>
#include <cstring>

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/float_panels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>
#include "runner/kernels/rows.inl"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

// Tiles whose sums fill the registers, with weights and an activation beside them. Few rows: where they lie 4
// KiB apart, they compete for one set of the first-level cache.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr size_t kTileRows = 6, kTileVectors = 4;
#elif HWY_TARGET <= HWY_AVX2
constexpr size_t kTileRows = 6, kTileVectors = 2;
#elif HWY_TARGET == HWY_SCALAR
constexpr size_t kTileRows = 1, kTileVectors = 4;
#else
constexpr size_t kTileRows = 2, kTileVectors = 4;
#endif
// One row leaves registers free: more sums hide the latency of the additions.
constexpr size_t kAloneVectors = 4;

// y [kRows, kVectors vectors] of a block of outputs from lane `first` on, of which `outs` are stored.
template <class Row, size_t kRows, size_t kVectors>
HWY_INLINE void Tile(const float* HWY_RESTRICT x, size_t in, const std::byte* HWY_RESTRICT block,
                     size_t first, float* HWY_RESTRICT y, size_t stride, size_t outs) {
  const F32 d;
  const size_t size = Row::Bytes(1), panel_bytes = in * kFloatPanelOuts * size;
  const std::byte* at[kVectors];
#pragma GCC unroll 4
  for (size_t v = 0; v < kVectors; ++v) {
    const size_t lane = first + v * kLanes;
    at[v] = block + lane / kFloatPanelOuts * panel_bytes + lane % kFloatPanelOuts * size;
  }
  VF32 sum[kRows][kVectors];
#pragma GCC unroll 12
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  for (size_t k = 0; k < in; ++k) {
    VF32 weight[kVectors];
#pragma GCC unroll 4
    for (size_t v = 0; v < kVectors; ++v) {
      weight[v] = typename Row::Block{at[v] + k * kFloatPanelOuts * size}.Load(0);
    }
#pragma GCC unroll 12
    for (size_t r = 0; r < kRows; ++r) {
      const VF32 activation = hn::Set(d, x[r * in + k]);
#pragma GCC unroll 4
      for (size_t v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(activation, weight[v], sum[r][v]);
    }
  }
#pragma GCC unroll 12
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kVectors; ++v) {
      float* const to = y + r * stride + v * kLanes;
      if (outs >= (v + 1) * kLanes) {
        hn::StoreU(sum[r][v], d, to);
      } else if (outs > v * kLanes) {
        StoreFirst(sum[r][v], to, outs - v * kLanes);
      }
    }
  }
}

// All rows of a block: tiles of kRows rows and then smaller ones.
template <class Row, size_t kRows, size_t kVectors>
void Tiles(const float* x, size_t rows, size_t in, const std::byte* block, float* y, size_t stride,
           size_t outs) {
  for (; rows >= kRows; rows -= kRows, x += kRows * in, y += kRows * stride) {
    for (size_t first = 0; first < std::min(outs, kFloatBlockOuts); first += kVectors * kLanes) {
      Tile<Row, kRows, kVectors>(x, in, block, first, y + first, stride, outs - first);
    }
  }
  if constexpr (kRows > 1) {
    constexpr size_t kNext = kRows > 8 ? 8 : kRows > 4 ? 4 : kRows / 2;
    constexpr size_t kWide = kNext == 1 ? kAloneVectors : kVectors;
    if (rows > 0) Tiles<Row, kNext, kWide>(x, rows, in, block, y, stride, outs);
  }
}

// A block of weights stays in the second-level cache while all rows pass it, a byte of theirs per cycle.
template <class Row>
void Blocks(const FloatGemmTask& work) {
  const size_t block_bytes = work.in * kFloatBlockOuts * Row::Bytes(1);
  for (size_t b = work.begin; b < work.end; ++b) {
    const size_t out = b * kFloatBlockOuts;
    Tiles<Row, kTileRows, kTileVectors>(work.x, work.rows, work.in,
                                        work.panels + (b - work.first) * block_bytes, work.y + out, work.out,
                                        work.out - out);
  }
}

void Gemm(const FloatGemmTask& work) {
  switch (work.type) {
    case weights::DataType::kF16:
      return Blocks<F16Row>(work);
    case weights::DataType::kBF16:
      return Blocks<BF16Row>(work);
    default:
      return Blocks<F32Row>(work);
  }
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::runner::kernels {
namespace {

HWY_EXPORT(Gemm);

template <class Element>
void FillPanel(const std::byte* from, size_t row_bytes, size_t outs, size_t in, std::byte* to) {
  constexpr size_t kAtOnce = 64 / sizeof(Element);  // a cache line of each row
  for (size_t begin = 0; begin < in; begin += kAtOnce) {
    for (size_t o = 0; o < outs; ++o) {
      const std::byte* const row = from + o * row_bytes;
      for (size_t k = begin; k < std::min(in, begin + kAtOnce); ++k) {
        std::memcpy(to + (k * kFloatPanelOuts + o) * sizeof(Element), row + k * sizeof(Element),
                    sizeof(Element));
      }
    }
  }
}

}  // namespace

bool UsePackedFloat() {
  return ((hwy::SupportedTargets() | HWY_STATIC_TARGET) & (HWY_AVX2 | HWY_AVX3 | HWY_NEON)) != 0;
}

void FillFloatPanels(ThreadPool& pool, const std::byte* from, weights::DataType type, int64_t out, int64_t in,
                     std::byte* to) {
  const size_t row_bytes = weights::RowBytes(type, in);
  const auto outs = static_cast<size_t>(out);
  pool.ParallelFor((outs + kFloatPanelOuts - 1) / kFloatPanelOuts, [&](size_t panel) {
    const size_t first = panel * kFloatPanelOuts, some = std::min(kFloatPanelOuts, outs - first);
    const auto fill = type == weights::DataType::kF32 ? FillPanel<uint32_t> : FillPanel<uint16_t>;
    fill(from + first * row_bytes, row_bytes, some, static_cast<size_t>(in),
         to + panel * kFloatPanelOuts * row_bytes);
  });
}

void FillFloatBlocks(const std::byte* from, weights::DataType type, int64_t out, int64_t in, size_t begin,
                     size_t end, std::byte* to) {
  const size_t row_bytes = weights::RowBytes(type, in), block_bytes = kFloatBlockOuts * row_bytes;
  const auto fill = type == weights::DataType::kF32 ? FillPanel<uint32_t> : FillPanel<uint16_t>;
  for (size_t block = begin; block < end; ++block, to += block_bytes) {
    const size_t first = block * kFloatBlockOuts;
    const size_t outs = std::min(kFloatBlockOuts, static_cast<size_t>(out) - first);
    if (outs < kFloatBlockOuts) std::memset(to, 0, block_bytes);
    for (size_t o = 0; o < outs; o += kFloatPanelOuts) {
      fill(from + (first + o) * row_bytes, row_bytes, std::min(kFloatPanelOuts, outs - o),
           static_cast<size_t>(in), to + o * row_bytes);
    }
  }
}

void FloatGemm(const FloatGemmTask& work) { HWY_DYNAMIC_DISPATCH(Gemm)(work); }

}  // namespace quire::runner::kernels
#endif  // HWY_ONCE
