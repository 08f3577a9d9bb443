#include "runner/kernels/encoder_ops.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "runner/kernels/key_value.h"
#include "runner/kernels/row_epilogue.h"

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/encoder_ops.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
#include "runner/kernels/rows.inl"
// clang-format on

#ifndef QUIRE_RUNNER_KERNELS_ENCODER_OPS_ONCE_
#define QUIRE_RUNNER_KERNELS_ENCODER_OPS_ONCE_
namespace quire::runner::kernels {
namespace {

// Queries of a task share transposed keys. A tile of keys has one maximum: few texts have more keys than one
// tile.
constexpr auto kQueryRows = static_cast<size_t>(kQueryBlockRows);
constexpr size_t kKeyTile = 256;
constexpr size_t kTransposed = 64;  // keys at a time

struct QueryBlock {
  size_t first = 0, length = 0;  // rows of its sequence
  size_t begin = 0, end = 0;     // queries, within the sequence
  size_t query = 0;              // the first one's row of q and out
  size_t head = 0;
};

}  // namespace
}  // namespace quire::runner::kernels
#endif  // QUIRE_RUNNER_KERNELS_ENCODER_OPS_ONCE_

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

// A tile of sums: rows and vectors share their loads, and are enough to hide an addition's latency.
constexpr size_t kRowsAtOnce = kManyRegisters ? 8 : 4;
constexpr size_t kVectorsAtOnce = kManyRegisters ? 2 : 3;
constexpr size_t kAhead = 8;  // keys whose numbers are on their way from memory
constexpr float kOutOfReach = -1e30F;

// exp(x); exp(-110) is 0 in float32.
HWY_INLINE VF32 ExpOrZero(VF32 x) { return hn::Exp(F32(), hn::Max(x, hn::Set(F32(), -110.0F))); }

class TwoWayTask {
 public:
  TwoWayTask(const TwoWayAttention& shape, const QueryBlock& block, const float* q, const float* k,
             const float* v, float* out)
      : shape_(shape),
        block_(block),
        rows_(block.end - block.begin),
        dim_(static_cast<size_t>(shape.head_dim)),
        q_stride_(static_cast<size_t>(shape.heads) * dim_),
        kv_stride_(static_cast<size_t>(shape.kv_heads) * dim_) {
    const size_t kv_head = block.head / static_cast<size_t>(shape.heads / shape.kv_heads);
    q_ = q + block.query * q_stride_ + block.head * dim_;
    out_ = out + block.query * q_stride_ + block.head * dim_;
    k_ = k + block.first * kv_stride_ + kv_head * dim_;
    v_ = v + block.first * kv_stride_ + kv_head * dim_;
  }

  void Run() {
    for (size_t r = 0; r < rows_; ++r) {
      std::fill_n(out_ + r * q_stride_, dim_, 0.0F);
      weight_[r] = 0;
      max_[r] = 0;
    }
    const size_t reach = shape_.reach < 0 ? block_.length : static_cast<size_t>(shape_.reach);
    const size_t first = block_.begin > reach ? block_.begin - reach : 0;
    const size_t last = std::min(block_.length, block_.end + reach);
    for (size_t tile = first / kTransposed * kTransposed; tile < last; tile += kKeyTile) {
      const size_t end = std::min(tile + kKeyTile, last);
      width_ = (end - tile + kLanes - 1) / kLanes * kLanes;
      for (size_t some = tile; some < end; some += kTransposed) {
        LoadKeys(some, std::min(some + kTransposed, end));
        Score(some - tile);
      }
      for (size_t r = 0; r < rows_; ++r) Weigh(r, tile, end, reach);
      AddValues(tile, end);
    }
    for (size_t r = 0; r < rows_; ++r) {
      float* const row = out_ + r * q_stride_;
      const float factor = 1 / weight_[r];
      for (size_t c = 0; c < dim_; ++c) row[c] *= factor;
    }
  }

 private:
  // Transposed; whole vectors, the columns behind the last key are zero.
  void LoadKeys(size_t begin, size_t end) {
    const size_t count = end - begin;
    columns_ = (count + kLanes - 1) / kLanes * kLanes;
    size_t i = 0;
    for (; i + 4 <= count; i += 4) {
      for (size_t next = i + kAhead; next < std::min(i + kAhead + 4, count); ++next) {
        for (size_t c = 0; c < dim_; c += 16) __builtin_prefetch(k_ + (begin + next) * kv_stride_ + c);
      }
      LoadKeys4(k_ + (begin + i) * kv_stride_, i);
    }
    for (; i < count; ++i) {
      const float* const key = k_ + (begin + i) * kv_stride_;
      for (size_t c = 0; c < dim_; ++c) keys_[c * kTransposed + i] = key[c];
    }
    if (count == columns_) return;
    for (size_t c = 0; c < dim_; ++c) {
      std::fill(keys_ + c * kTransposed + count, keys_ + c * kTransposed + columns_, 0.0F);
    }
  }

  // Four keys: interleaved a vector of dimensions at a time, then four numbers to each dimension.
  HWY_INLINE void LoadKeys4(const float* key, size_t column) {
    const F32 d;
    alignas(64) float four[4 * kLanes];
    size_t c = 0;
    for (; c + kLanes <= dim_; c += kLanes) {
      hn::StoreInterleaved4(hn::LoadU(d, key + c), hn::LoadU(d, key + kv_stride_ + c),
                            hn::LoadU(d, key + 2 * kv_stride_ + c), hn::LoadU(d, key + 3 * kv_stride_ + c), d,
                            four);
      for (size_t at = 0; at < kLanes; ++at) {
        std::memcpy(keys_ + (c + at) * kTransposed + column, four + 4 * at, 4 * sizeof(float));
      }
    }
    for (; c < dim_; ++c) {
      for (size_t i = 0; i < 4; ++i) keys_[c * kTransposed + column + i] = key[i * kv_stride_ + c];
    }
  }

  // An element is summed in the order of the dimensions, however many rows and vectors are taken at once.
  template <size_t kRows, size_t kVectors>
  HWY_INLINE size_t ScoreColumns(size_t r, size_t first, size_t at) {
    const F32 d;
    const float* const q = q_ + r * q_stride_;
    for (; at + kVectors * kLanes <= columns_; at += kVectors * kLanes) {
      VF32 sums[kRows][kVectors];
#pragma GCC unroll 8
      for (size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
        for (size_t j = 0; j < kVectors; ++j) sums[i][j] = hn::Zero(d);
      }
      for (size_t c = 0; c < dim_; ++c) {
        VF32 keys[kVectors];
#pragma GCC unroll 4
        for (size_t j = 0; j < kVectors; ++j)
          keys[j] = hn::Load(d, keys_ + c * kTransposed + at + j * kLanes);
#pragma GCC unroll 8
        for (size_t i = 0; i < kRows; ++i) {
          const VF32 query = hn::Set(d, q[i * q_stride_ + c]);
#pragma GCC unroll 4
          for (size_t j = 0; j < kVectors; ++j) sums[i][j] = hn::MulAdd(query, keys[j], sums[i][j]);
        }
      }
#pragma GCC unroll 8
      for (size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
        for (size_t j = 0; j < kVectors; ++j) {
          hn::Store(sums[i][j], d, scores_[r + i] + first + at + j * kLanes);
        }
      }
    }
    return at;
  }

  template <size_t kRows>
  HWY_INLINE void ScoreRows(size_t r, size_t first) {
    size_t at = ScoreColumns<kRows, kVectorsAtOnce>(r, first, 0);
    if constexpr (kVectorsAtOnce > 2) at = ScoreColumns<kRows, 2>(r, first, at);
    ScoreColumns<kRows, 1>(r, first, at);
  }

  // Scores the transposed keys, which are the tile's from `first` on.
  void Score(size_t first) {
    size_t r = 0;
    for (; r + kRowsAtOnce <= rows_; r += kRowsAtOnce) ScoreRows<kRowsAtOnce>(r, first);
    for (; r + 2 <= rows_; r += 2) ScoreRows<2>(r, first);
    for (; r < rows_; ++r) ScoreRows<1>(r, first);
  }

  // To the scores of keys [from, to) for the query `at`.
  void AddDistanceBias(float* scores, size_t tile, size_t at, size_t from, size_t to) {
    constexpr ptrdiff_t kFar = kBiasReach;
    const float* const bias =
        shape_.distance_bias.data() + block_.head * static_cast<size_t>(2 * kFar + 1) + kFar;
    for (size_t i = from; i < to; ++i) {
      const ptrdiff_t distance = static_cast<ptrdiff_t>(i) - static_cast<ptrdiff_t>(at);
      scores[i - tile] += bias[std::clamp(distance, -kFar, kFar)];
    }
  }

  // Row r's scores of keys [tile, end) become weights; the running maximum moves on.
  void Weigh(size_t r, size_t tile, size_t end, size_t reach) {
    const F32 d;
    float* const scores = scores_[r];
    const size_t at = block_.begin + r;
    const size_t from = std::max(tile, at > reach ? at - reach : 0), to = std::min(end, at + reach + 1);
    if (from >= to) {
      std::fill_n(scores, width_, 0.0F);
      keep_[r] = 1;
      return;
    }
    for (size_t i = 0; i < width_; i += kLanes) {
      hn::Store(hn::Mul(hn::Load(d, scores + i), hn::Set(d, shape_.scale)), d, scores + i);
    }
    if (!shape_.slopes.empty()) {
      const float slope = shape_.slopes[block_.head];
      for (size_t i = from; i < to; ++i) {
        scores[i - tile] -= slope * static_cast<float>(i > at ? i - at : at - i);
      }
    }
    if (!shape_.distance_bias.empty()) AddDistanceBias(scores, tile, at, from, to);
    std::fill(scores, scores + (from - tile), kOutOfReach);
    std::fill(scores + (to - tile), scores + width_, kOutOfReach);
    VF32 top = hn::Set(d, kOutOfReach);
    for (size_t i = 0; i < width_; i += kLanes) top = hn::Max(top, hn::Load(d, scores + i));
    const float largest = hn::GetLane(hn::MaxOfLanes(d, top));
    const bool none = weight_[r] == 0;
    const float max = none ? largest : std::max(max_[r], largest);
    keep_[r] = none ? 0 : hn::GetLane(ExpOrZero(hn::Set(d, max_[r] - max)));
    max_[r] = max;
    for (size_t i = 0; i < width_; i += kLanes) {
      hn::Store(ExpOrZero(hn::Sub(hn::Load(d, scores + i), hn::Set(d, max))), d, scores + i);
    }
    const auto add = [](const VF32& sum, const VF32& v) HWY_ATTR { return hn::Add(sum, v); };
    weight_[r] = weight_[r] * keep_[r] + SumOver(scores, width_, add);
  }

  // Columns [c, c + kVectors * kLanes) of the rows' sums, from packed values.
  template <size_t kRows, size_t kVectors>
  HWY_INLINE void AddColumns(size_t r, size_t keys, size_t c) {
    const F32 d;
    VF32 sums[kRows][kVectors];
#pragma GCC unroll 8
    for (size_t i = 0; i < kRows; ++i) {
      const VF32 keep = hn::Set(d, keep_[r + i]);
#pragma GCC unroll 4
      for (size_t j = 0; j < kVectors; ++j) {
        sums[i][j] = hn::Mul(hn::LoadU(d, out_ + (r + i) * q_stride_ + c + j * kLanes), keep);
      }
    }
    for (size_t key = 0; key < keys; ++key) {
      VF32 values[kVectors];
#pragma GCC unroll 4
      for (size_t j = 0; j < kVectors; ++j) values[j] = hn::Load(d, values_ + (key * kVectors + j) * kLanes);
#pragma GCC unroll 8
      for (size_t i = 0; i < kRows; ++i) {
        const VF32 weight = hn::Set(d, scores_[r + i][key]);
#pragma GCC unroll 4
        for (size_t j = 0; j < kVectors; ++j) sums[i][j] = hn::MulAdd(weight, values[j], sums[i][j]);
      }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (size_t j = 0; j < kVectors; ++j) {
        hn::StoreU(sums[i][j], d, out_ + (r + i) * q_stride_ + c + j * kLanes);
      }
    }
  }

  // Columns from `c` on while there are kVectors; gives the first that is left. Values are packed for each
  // run of columns: rows of different keys lie far apart, and fall on each other in the caches.
  template <size_t kVectors>
  HWY_INLINE size_t AddRun(size_t begin, size_t end, size_t c) {
    const F32 d;
    for (; c + kVectors * kLanes <= dim_; c += kVectors * kLanes) {
      for (size_t key = begin; key < end; ++key) {
        const float* const value = v_ + key * kv_stride_ + c;
        __builtin_prefetch(v_ + std::min(key + kAhead, end - 1) * kv_stride_ + c);
#pragma GCC unroll 4
        for (size_t j = 0; j < kVectors; ++j) {
          hn::Store(hn::LoadU(d, value + j * kLanes), d, values_ + ((key - begin) * kVectors + j) * kLanes);
        }
      }
      size_t r = 0;
      for (; r + kRowsAtOnce <= rows_; r += kRowsAtOnce) AddColumns<kRowsAtOnce, kVectors>(r, end - begin, c);
      for (; r + 2 <= rows_; r += 2) AddColumns<2, kVectors>(r, end - begin, c);
      for (; r < rows_; ++r) AddColumns<1, kVectors>(r, end - begin, c);
    }
    return c;
  }

  // An element is summed in the order of the keys, however many rows and columns are taken at once.
  void AddValues(size_t begin, size_t end) {
    size_t c = AddRun<kVectorsAtOnce>(begin, end, 0);
    if constexpr (kVectorsAtOnce > 2) c = AddRun<2>(begin, end, c);
    c = AddRun<1>(begin, end, c);
    for (; c < dim_; ++c) {
      for (size_t i = 0; i < rows_; ++i) {
        float one = out_[i * q_stride_ + c] * keep_[i];
        for (size_t key = begin; key < end; ++key) {
          one = MulAddOne(scores_[i][key - begin], v_[key * kv_stride_ + c], one);
        }
        out_[i * q_stride_ + c] = one;
      }
    }
  }

  const TwoWayAttention& shape_;
  const QueryBlock& block_;
  const size_t rows_, dim_, q_stride_, kv_stride_;
  const float *q_ = nullptr, *k_ = nullptr, *v_ = nullptr;
  float* out_ = nullptr;
  size_t width_ = 0, columns_ = 0;  // whole vectors: of the tile, of the transposed keys
  alignas(64) float scores_[kQueryRows][kKeyTile];
  alignas(64) float keys_[kMaxHeadDim * kTransposed];  // [dim, kTransposed]
  alignas(64) float values_[kKeyTile * kVectorsAtOnce * kLanes];
  float weight_[kQueryRows], max_[kQueryRows], keep_[kQueryRows];
};

void RunTwoWayTask(const TwoWayAttention& shape, const QueryBlock& block, const float* q, const float* k,
                   const float* v, float* out) {
  TwoWayTask(shape, block, q, k, v, out).Run();
}

// Abramowitz and Stegun 7.1.26, for x >= 0: 1 - (a1 t + ... + a5 t^5) exp(-x^2), t = 1 / (1 + p x), to
// 1.5e-7.
HWY_INLINE VF32 Erf(VF32 x) {
  const F32 d;
  const VF32 one = hn::Set(d, 1.0F);
  const VF32 positive = hn::Abs(x);
  const VF32 t = hn::Div(one, hn::MulAdd(hn::Set(d, 0.3275911F), positive, one));
  VF32 sum = hn::MulAdd(hn::Set(d, 1.061405429F), t, hn::Set(d, -1.453152027F));
  sum = hn::MulAdd(sum, t, hn::Set(d, 1.421413741F));
  sum = hn::MulAdd(sum, t, hn::Set(d, -0.284496736F));
  sum = hn::MulAdd(sum, t, hn::Set(d, 0.254829592F));
  const VF32 rest = hn::Mul(hn::Mul(sum, t), ExpOrZero(hn::Neg(hn::Mul(positive, positive))));
  return hn::CopySign(hn::Sub(one, rest), x);
}

void GeluErfRange(float* x, size_t size) {
  ForEachElement(
      size, x,
      [](VF32 v) HWY_ATTR {
        const F32 d;
        const VF32 half = hn::Mul(v, hn::Set(d, 0.5F));
        return hn::MulAdd(half, Erf(hn::Mul(v, hn::Set(d, 0.70710678F))), half);
      },
      x);
}

void GeluErfMulRange(const float* up, float* gate, size_t size) {
  GeluErfRange(gate, size);
  ForEachElement(
      size, gate, [](VF32 g, VF32 u) HWY_ATTR { return hn::Mul(g, u); }, gate, up);
}

void ReluRange(float* x, size_t size) {
  ForEachElement(
      size, x, [](VF32 v) HWY_ATTR { return hn::Max(v, hn::Zero(F32())); }, x);
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::runner::kernels {
namespace {

HWY_EXPORT(RunTwoWayTask);
HWY_EXPORT(GeluErfRange);
HWY_EXPORT(GeluErfMulRange);
HWY_EXPORT(ReluRange);

constexpr size_t kElementsOfTask = 8192;

// The blocks of the queries [first_query, first_query + queries).
std::vector<QueryBlock> QueryBlocksOf(const TwoWayAttention& shape, int64_t queries) {
  const auto heads = static_cast<size_t>(shape.heads), from = static_cast<size_t>(shape.first_query),
             to = from + static_cast<size_t>(queries);
  std::vector<QueryBlock> blocks;
  blocks.reserve(heads * ((to - from) / kQueryRows + shape.row_begin.size()));
  for (size_t s = 0; s + 1 < shape.row_begin.size(); ++s) {
    const auto first = static_cast<size_t>(shape.row_begin[s]),
               last = static_cast<size_t>(shape.row_begin[s + 1]);
    if (last <= from) continue;
    if (first >= to) break;
    const size_t length = last - first, end = std::min(length, to - first);
    for (size_t begin = first < from ? from - first : 0; begin < end; begin += kQueryRows) {
      assert(begin % kQueryRows == 0);
      for (size_t head = 0; head < heads; ++head) {
        blocks.push_back(
            {first, length, begin, std::min(begin + kQueryRows, length), first + begin - from, head});
      }
    }
  }
  return blocks;
}

template <class Fn>
void InRanges(ThreadPool& pool, std::span<float> x, Fn fn) {
  pool.ParallelFor((x.size() + kElementsOfTask - 1) / kElementsOfTask, [&](size_t task) {
    const size_t begin = task * kElementsOfTask;
    fn(x.data() + begin, std::min(kElementsOfTask, x.size() - begin));
  });
}

}  // namespace

void AttendBothWays(ThreadPool& pool, const TwoWayAttention& shape, std::span<const float> q,
                    std::span<const float> k, std::span<const float> v, std::span<float> out) {
  assert(shape.head_dim <= kMaxHeadDim && shape.heads % shape.kv_heads == 0);
  assert(q.size() == out.size() && k.size() == v.size());
  const std::vector<QueryBlock> blocks =
      QueryBlocksOf(shape, static_cast<int64_t>(q.size()) / (int64_t{shape.heads} * shape.head_dim));
  // Several per task: a block of a short text takes about a microsecond.
  constexpr size_t kBlocks = 8;
  pool.ParallelFor((blocks.size() + kBlocks - 1) / kBlocks, [&](size_t task) {
    const size_t end = std::min(blocks.size(), (task + 1) * kBlocks);
    for (size_t i = task * kBlocks; i < end; ++i) {
      HWY_DYNAMIC_DISPATCH(RunTwoWayTask)(shape, blocks[i], q.data(), k.data(), v.data(), out.data());
    }
  });
}

int64_t QueryBlocksEnd(std::span<const int32_t> row_begin, int64_t begin, int64_t rows) {
  int64_t end = begin;
  for (auto next = std::ranges::upper_bound(row_begin, begin); next != row_begin.end(); ++next) {
    while (end < *next) {
      const int64_t block = std::min(end + kQueryBlockRows, int64_t{*next});
      if (end > begin && block > begin + rows) return end;
      end = block;
    }
  }
  return end;
}

void GeluErf(ThreadPool& pool, std::span<float> x) {
  InRanges(pool, x, [](float* at, size_t size) { HWY_DYNAMIC_DISPATCH(GeluErfRange)(at, size); });
}

void Relu(ThreadPool& pool, std::span<float> x) {
  InRanges(pool, x, [](float* at, size_t size) { HWY_DYNAMIC_DISPATCH(ReluRange)(at, size); });
}

void GeluErf(std::span<float> x) { HWY_DYNAMIC_DISPATCH(GeluErfRange)(x.data(), x.size()); }

void Relu(std::span<float> x) { HWY_DYNAMIC_DISPATCH(ReluRange)(x.data(), x.size()); }

void GeluErfMul(std::span<const float> up, std::span<float> gate) {
  assert(up.size() == gate.size());
  HWY_DYNAMIC_DISPATCH(GeluErfMulRange)(up.data(), gate.data(), gate.size());
}

}  // namespace quire::runner::kernels
#endif  // HWY_ONCE
