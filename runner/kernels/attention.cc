#include "runner/kernels/attention.h"

#include <algorithm>
#include <cassert>
#include <type_traits>

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/attention.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
#include "runner/kernels/rows.inl"
// clang-format on

#ifndef QUIRE_RUNNER_KERNELS_ATTENTION_ONCE_
#define QUIRE_RUNNER_KERNELS_ATTENTION_ONCE_
namespace quire::runner::kernels {
namespace {

// Query rows per task: enough to reuse a tile of K and V often, few enough to stay in the second-level cache.
constexpr size_t kItemRows = 64;
// Keys per step of the running softmax, at most.
constexpr size_t kTile = 64;

// The sizes that every part of a layer's work needs.
struct Geometry {
  explicit Geometry(const AttentionLayer& at, int32_t heads_total)
      : group(at.layout->groups[at.group]),
        heads(static_cast<size_t>(heads_total)),
        kv_heads(static_cast<size_t>(group.kv_heads)),
        share(heads / kv_heads),
        dim(static_cast<size_t>(group.head_dim)),
        value_dim(static_cast<size_t>(group.value_dim())),
        page_tokens(at.layout->page_tokens) {}

  const cache::AttentionGroup& group;
  size_t heads, kv_heads, share, dim, value_dim;
  cache::Position page_tokens;
};

}  // namespace
}  // namespace quire::runner::kernels
#endif  // QUIRE_RUNNER_KERNELS_ATTENTION_ONCE_

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

// Query rows of one item on their way through the keys.
struct OnlineSoftmaxState {
  alignas(64) float scores[kItemRows][kTile];
  alignas(64) float query[kItemRows * kMaxLatentKeyDim];   // [rows, dim]
  alignas(64) float sum[kItemRows * kMaxHeadDim];          // [rows, value_dim] of weighted values / exp(max)
  alignas(64) float keys[kMaxHeadDim * kTile];             // [dim, kTile] of the tile
  alignas(64) float values[kTile * kMaxHeadDim];           // [kTile, value_dim] of the tile
  alignas(64) float keep[kItemRows];                       // what the tile leaves of the sums so far
  cache::Position position[kItemRows], oldest[kItemRows];  // of a row, and of the first key that it sees
  float max[kItemRows];
  float weight[kItemRows];  // sum of exp(score - max); 0 = no key yet
};

// Rows and vectors of a tile of sums; beside them are a row of vectors and a broadcast number.
#if HWY_TARGET <= HWY_AVX3
constexpr size_t kScoreRows = 12, kScoreVectors = 2;  // 27 of 32 registers
constexpr size_t kValueRows = 6, kValueVectors = 4;   // 29
#else
constexpr size_t kScoreRows = 6, kScoreVectors = 2;  // 15 of 16
constexpr size_t kValueRows = 6, kValueVectors = 2;
#endif
// From this number of rows on, a tile's keys and values are converted to float32 before they are used.
constexpr size_t kConvertRows = 7;

// Elements [c, c + kLanes) of a row. REQUIRES: c is a multiple of kLanes.
template <class Row>
HWY_INLINE VF32 LoadFrom(const Row& row, size_t c) {
  return row.At(c / Row::kBlock).Load(c % Row::kBlock);
}

// For kRows rows and kWide vectors of a head from element c on: sum = sum * keep + the values of keys [begin,
// end) of a tile, weighted. Values are `stride` bytes apart.
template <class Row, size_t kRows, size_t kWide>
HWY_INLINE void AddValuesTile(const float* weights, size_t begin, size_t end, const std::byte* values,
                              size_t stride, size_t dim, size_t c, const float* keep, float* sum) {
  const F32 d;
  VF32 sums[kRows][kWide];
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (size_t w = 0; w < kWide; ++w) {
      sums[r][w] = hn::Mul(hn::LoadU(d, sum + r * dim + c + w * kLanes), hn::Set(d, keep[r]));
    }
  }
  for (size_t key = begin; key < end; ++key) {
    const Row row{values + key * stride};
    VF32 value[kWide];
#pragma GCC unroll 4
    for (size_t w = 0; w < kWide; ++w) value[w] = LoadFrom(row, c + w * kLanes);
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      const VF32 weight = hn::Set(d, weights[r * kTile + key]);
#pragma GCC unroll 4
      for (size_t w = 0; w < kWide; ++w) sums[r][w] = hn::MulAdd(weight, value[w], sums[r][w]);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (size_t w = 0; w < kWide; ++w) hn::StoreU(sums[r][w], d, sum + r * dim + c + w * kLanes);
  }
}

// The same for whole heads. Keys that a row does not see have the weight 0, which changes nothing.
template <class Row, size_t kRows>
HWY_INLINE void AddValues(const float* weights, size_t begin, size_t end, const std::byte* values,
                          size_t stride, size_t dim, const float* keep, float* sum) {
  constexpr size_t kWide = kValueVectors;
  size_t c = 0;
  for (; c + kWide * kLanes <= dim; c += kWide * kLanes) {
    AddValuesTile<Row, kRows, kWide>(weights, begin, end, values, stride, dim, c, keep, sum);
  }
  for (; c + kLanes <= dim; c += kLanes) {
    AddValuesTile<Row, kRows, 1>(weights, begin, end, values, stride, dim, c, keep, sum);
  }
  for (; c < dim; ++c) {
    for (size_t r = 0; r < kRows; ++r) {
      float one = sum[r * dim + c] * keep[r];
      for (size_t key = begin; key < end; ++key) {
        one += weights[r * kTile + key] * Row{values + key * stride}.ToFloat32(c);
      }
      sum[r * dim + c] = one;
    }
  }
}

// scores [width] = cap * tanh(scale * scores / cap).
HWY_INLINE void CapScores(float* scores, size_t width, Scoring scoring) {
  const F32 d;
  const VF32 inner = hn::Set(d, scoring.scale / scoring.soft_cap), cap = hn::Set(d, scoring.soft_cap);
  for (size_t i = 0; i < width; i += kLanes) {
    hn::Store(hn::Mul(cap, hn::Tanh(d, hn::Mul(hn::Load(d, scores + i), inner))), d, scores + i);
  }
}

constexpr float kUnseen = -1e30F;

// Scales the scores of keys [begin, end) of a tile `width` wide, marks the others unseen; returns the
// largest.
HWY_INLINE float ScaleScores(float* scores, size_t begin, size_t end, size_t width, Scoring scoring) {
  const F32 d;
  float scale = scoring.scale;
  if (scoring.soft_cap > 0) {
    std::fill(scores, scores + begin, 0.0F);
    std::fill(scores + end, scores + width, 0.0F);
    CapScores(scores, width, scoring);
    scale = 1;
  }
  if (begin != 0 || end != width) {
    std::fill(scores, scores + begin, kUnseen);
    std::fill(scores + end, scores + width, kUnseen);
  }
  VF32 top = hn::Set(d, kUnseen);
  for (size_t i = 0; i < width; i += kLanes) {
    const VF32 scaled = hn::Mul(hn::Load(d, scores + i), hn::Set(d, scale));
    hn::Store(scaled, d, scores + i);
    top = hn::Max(top, scaled);
  }
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

// exp(x); exp(-110) is 0 in float32, so unseen keys weigh exactly nothing.
HWY_INLINE VF32 ExpBelow(VF32 x) { return hn::Exp(F32(), hn::Max(x, hn::Set(F32(), -110.0F))); }

// Turns scores into weights relative to `max`; returns their sum.
HWY_INLINE float Weigh(float* scores, size_t width, float max) {
  const F32 d;
  VF32 sum = hn::Zero(d);
  for (size_t i = 0; i < width; i += kLanes) {
    const VF32 e = ExpBelow(hn::Sub(hn::Load(d, scores + i), hn::Set(d, max)));
    hn::Store(e, d, scores + i);
    sum = hn::Add(sum, e);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// The keys of a tile as they lie in their page, transposed: number c of the tokens from the i-th of the
// tile on.
template <class Row>
struct KeysInPage {
  const std::byte* at;
  size_t stride;  // tokens

  KeysInPage(const std::byte* head, size_t, size_t page_tokens, size_t first)
      : at(head + Row::Bytes(first)), stride(page_tokens) {}
  HWY_INLINE VF32 Load(size_t c, size_t i) const {
    return typename Row::Block{at + Row::Bytes(c * stride + i)}.Load(0);
  }
  float One(size_t c, size_t i) const { return Row{at}.ToFloat32(c * stride + i); }
};

template <>
struct KeysInPage<Q8Row> {
  const std::byte* scales;
  const std::byte* quants;
  size_t stride;

  KeysInPage(const std::byte* head, size_t dim, size_t page_tokens, size_t first)
      : scales(head + 2 * first),
        quants(head + 2 * (dim / Q8Row::kBlock) * page_tokens + first),
        stride(page_tokens) {}
  HWY_INLINE VF32 Load(size_t c, size_t i) const {
    const hn::Rebind<int32_t, F32> d32;
    const VF32 scale = F16Row::Block{scales + 2 * (c / Q8Row::kBlock * stride + i)}.Load(0);
    const auto quant = LoadAt(hn::Rebind<int8_t, F32>(), quants + c * stride + i);
    return hn::Mul(scale, hn::ConvertTo(F32(), hn::PromoteTo(d32, quant)));
  }
  float One(size_t c, size_t i) const {
    const float scale = F16Row{scales}.ToFloat32(c / Q8Row::kBlock * stride + i);
    return scale * static_cast<float>(static_cast<int8_t>(quants[c * stride + i]));
  }
};

// The same, converted to float32 before.
struct Float32Keys {
  const float* keys;  // [dim, kTile]
  HWY_INLINE VF32 Load(size_t c, size_t i) const { return hn::Load(F32(), keys + c * kTile + i); }
};

// Converts keys [begin, end) of a tile to float32, `width` wide; the other columns hold anything.
template <class Keys>
HWY_INLINE void ConvertKeysToFloat32(const Keys& keys, size_t begin, size_t end, size_t width, size_t dim,
                                     float* to) {
  if (keys.stride % kLanes != 0) {  // vectors would leave the page
    for (size_t c = 0; c < dim; ++c) {
      std::fill_n(to + c * kTile, width, 0.0F);
      for (size_t i = begin; i < end; ++i) to[c * kTile + i] = keys.One(c, i);
    }
    return;
  }
  for (size_t c = 0; c < dim; ++c) {
    for (size_t i = 0; i < width; i += kLanes) hn::Store(keys.Load(c, i), F32(), to + c * kTile + i);
  }
}

// Converts the values of keys [begin, end) of a tile, `stride` bytes apart, to float32.
template <class Row>
HWY_INLINE void ConvertValuesToFloat32(const std::byte* values, size_t stride, size_t begin, size_t end,
                                       size_t dim, float* to) {
  for (size_t key = begin; key < end; ++key) {
    const Row row{values + key * stride};
    size_t c = 0;
    for (; c + kLanes <= dim; c += kLanes) hn::StoreU(LoadFrom(row, c), F32(), to + key * dim + c);
    for (; c < dim; ++c) to[key * dim + c] = row.ToFloat32(c);
  }
}

// scores [kRows, kTile] columns [at, at + kWide vectors) = q [kRows, dim] times the tile's keys. An element
// is summed in the order of `dim`.
template <size_t kRows, size_t kWide, class Keys>
HWY_INLINE void ScoreTile(const float* q, size_t dim, const Keys& keys, size_t at, float* scores) {
  const F32 d;
  VF32 sums[kRows][kWide];
#pragma GCC unroll 12
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (size_t w = 0; w < kWide; ++w) sums[r][w] = hn::Zero(d);
  }
  for (size_t c = 0; c < dim; ++c) {
    VF32 key[kWide];
#pragma GCC unroll 4
    for (size_t w = 0; w < kWide; ++w) key[w] = keys.Load(c, at + w * kLanes);
#pragma GCC unroll 12
    for (size_t r = 0; r < kRows; ++r) {
      const VF32 query = hn::Set(d, q[r * dim + c]);
#pragma GCC unroll 4
      for (size_t w = 0; w < kWide; ++w) sums[r][w] = hn::MulAdd(query, key[w], sums[r][w]);
    }
  }
#pragma GCC unroll 12
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (size_t w = 0; w < kWide; ++w) hn::Store(sums[r][w], d, scores + r * kTile + at + w * kLanes);
  }
}

// The same for all rows and a tile `width` wide.
template <class Keys>
HWY_INLINE void ScoreKeys(const float* q, size_t rows, size_t dim, const Keys& keys, size_t width,
                          float* scores) {
  const auto run = [&]<size_t kSome>(size_t r) HWY_ATTR {
    size_t at = 0;
    for (; at + kScoreVectors * kLanes <= width; at += kScoreVectors * kLanes) {
      ScoreTile<kSome, kScoreVectors>(q + r * dim, dim, keys, at, scores + r * kTile);
    }
    for (; at < width; at += kLanes) ScoreTile<kSome, 1>(q + r * dim, dim, keys, at, scores + r * kTile);
  };
  size_t r = 0;
  for (; r + kScoreRows <= rows; r += kScoreRows) run.template operator()<kScoreRows>(r);
  for (; r + 4 <= rows; r += 4) run.template operator()<4>(r);
  for (; r + 2 <= rows; r += 2) run.template operator()<2>(r);
  for (; r < rows; ++r) run.template operator()<1>(r);
}

template <class Row>
class AttentionTask {
 public:
  AttentionTask(const AttentionLayer& at, const Geometry& geometry, const AttentionPlan::Item& item,
                Scoring scoring)
      : at_(at),
        g_(geometry),
        scoring_(scoring),
        sequence_(static_cast<size_t>(item.sequence)),
        kv_head_(static_cast<size_t>(item.kv_head)),
        begin_(static_cast<size_t>(item.begin)),
        rows_(static_cast<size_t>(item.end - item.begin)),
        offset_(at.step->offset(sequence_)) {}

  void Run(const float* q, float* out) {
    for (size_t r = 0; r < rows_; ++r) {
      std::copy_n(q + HeadIndex(r) * g_.dim, g_.dim, softmax_.query + r * g_.dim);
      std::fill_n(softmax_.sum + r * g_.value_dim, g_.value_dim, 0.0F);
      softmax_.position[r] = PositionOf(r);
      softmax_.oldest[r] = cache::OldestVisible(g_.group, softmax_.position[r]);
      const bool has_sink = !scoring_.sinks.empty();
      softmax_.weight[r] = has_sink ? 1.0F : 0.0F;
      softmax_.max[r] = has_sink ? scoring_.sinks[HeadIndex(r) % g_.heads] : 0.0F;
    }
    const size_t key_offset =
        cache::KeyOffset(*at_.layout, at_.group, at_.layer, static_cast<int32_t>(kv_head_));
    const size_t value_offset =
        cache::ValueOffset(*at_.layout, at_.group, at_.layer, static_cast<int32_t>(kv_head_));
    const cache::Position lowest = softmax_.oldest[0], highest = softmax_.position[rows_ - 1];
    for (const cache::PageView& page : at_.step->Pages(sequence_, at_.group)) {
      const cache::Position anchor = page.first - page.first % g_.page_tokens;
      if (anchor > highest) break;
      const cache::Position visible = page.first + page.tokens;
      for (cache::Position tile = anchor; tile < visible; tile += kTile) {
        const auto skip = static_cast<size_t>(tile - anchor);
        const cache::Position end =
            std::min({tile + static_cast<cache::Position>(kTile), visible, highest + 1});
        const cache::Position begin = std::max({tile, page.first, lowest});
        if (begin >= end) continue;
        Tile(tile, begin, end,
             KeysInPage<Row>(page.base + key_offset, g_.dim, static_cast<size_t>(g_.page_tokens), skip),
             page.base + key_offset + skip * Row::Bytes(g_.dim),
             page.base + value_offset + skip * Row::Bytes(g_.dim));
      }
    }
    for (size_t r = 0; r < rows_; ++r) {
      const VF32 weight = hn::Set(F32(), softmax_.weight[r]);
      ForEachElement(
          g_.value_dim, out + HeadIndex(r) * g_.value_dim,
          [weight](VF32 v) HWY_ATTR { return hn::Div(v, weight); }, softmax_.sum + r * g_.value_dim);
    }
  }

 private:
  cache::Position PositionOf(size_t r) const {
    return offset_ + static_cast<cache::Position>((begin_ + r) / g_.share);
  }
  // Which of the batch's [rows, heads] the r-th query is.
  size_t HeadIndex(size_t r) const {
    const size_t row = static_cast<size_t>(at_.row_begin[sequence_]) + (begin_ + r) / g_.share;
    return row * g_.heads + kv_head_ * g_.share + (begin_ + r) % g_.share;
  }

  // Keys at positions [begin, end) of the tile whose first key would be at position `tile`. Its rows, with
  // latent attention, begin at `key_rows`.
  void Tile(cache::Position tile, cache::Position begin, cache::Position end, const KeysInPage<Row>& keys,
            const std::byte* key_rows, const std::byte* values) {
    const auto first = static_cast<size_t>(begin - tile), last = static_cast<size_t>(end - tile);
    // Columns without a key yield numbers that nobody looks at.
    const size_t width = (last + kLanes - 1) / kLanes * kLanes;
    const size_t stride = Row::Bytes(g_.dim);
    if (g_.group.latent > 0) {
      DotBlock<Row>(softmax_.query, g_.dim, rows_, key_rows + first * stride, stride, last - first, g_.dim,
                    &softmax_.scores[0][first], kTile);
    } else if (rows_ < kConvertRows && keys.stride % kLanes == 0) {
      ScoreKeys(softmax_.query, rows_, g_.dim, keys, width, &softmax_.scores[0][0]);
    } else {
      ConvertKeysToFloat32(keys, first, last, width, g_.dim, softmax_.keys);
      ScoreKeys(softmax_.query, rows_, g_.dim, Float32Keys{softmax_.keys}, width, &softmax_.scores[0][0]);
    }
    WeighTile(tile, begin, end, width);
    if (rows_ < kConvertRows || std::is_same_v<Row, F32Row>) {
      AddTile<Row>(first, last, values, stride);
    } else {
      ConvertValuesToFloat32<Row>(values, stride, first, last, g_.value_dim, softmax_.values);
      AddTile<F32Row>(first, last, reinterpret_cast<const std::byte*>(softmax_.values),
                      F32Row::Bytes(g_.value_dim));
    }
  }

  // Adds the weighted values of keys [first, last) of a tile, `stride` bytes apart, to the sums of all rows.
  template <class ValueRow>
  void AddTile(size_t first, size_t last, const std::byte* values, size_t stride) {
    const auto add = [&]<size_t kSome>(size_t r) HWY_ATTR {
      AddValues<ValueRow, kSome>(softmax_.scores[r], first, last, values, stride, g_.value_dim,
                                 softmax_.keep + r, softmax_.sum + r * g_.value_dim);
    };
    size_t r = 0;
    for (; r + kValueRows <= rows_; r += kValueRows) add.template operator()<kValueRows>(r);
    for (; r + 4 <= rows_; r += 4) add.template operator()<4>(r);
    for (; r < rows_; ++r) add.template operator()<1>(r);
  }

  // Turns the tile's scores into weights and moves the running maxima on.
  void WeighTile(cache::Position tile, cache::Position begin, cache::Position end, size_t width) {
    alignas(64) float sinks[kItemRows] = {};  // old maximum - new one
    bool sees[kItemRows];
    for (size_t r = 0; r < rows_; ++r) {
      const cache::Position from = std::max(begin, softmax_.oldest[r]),
                            to = std::min(end, softmax_.position[r] + 1);
      sees[r] = from < to;
      if (!sees[r]) {
        std::fill_n(softmax_.scores[r], width, 0.0F);
        continue;
      }
      const float largest = ScaleScores(softmax_.scores[r], static_cast<size_t>(from - tile),
                                        static_cast<size_t>(to - tile), width, scoring_);
      const float max = softmax_.weight[r] == 0.0F ? largest : std::max(softmax_.max[r], largest);
      sinks[r] = softmax_.max[r] - max;
      softmax_.max[r] = max;
    }
    const F32 d;
    for (size_t r = 0; r < rows_; r += kLanes)
      hn::Store(ExpBelow(hn::Load(d, sinks + r)), d, softmax_.keep + r);
    for (size_t r = 0; r < rows_; ++r) {
      if (!sees[r]) {
        softmax_.keep[r] = 1;
        continue;
      }
      if (softmax_.weight[r] == 0.0F) softmax_.keep[r] = 0;  // the first keys it sees
      softmax_.weight[r] =
          softmax_.weight[r] * softmax_.keep[r] + Weigh(softmax_.scores[r], width, softmax_.max[r]);
    }
  }

  const AttentionLayer& at_;
  const Geometry& g_;
  const Scoring scoring_;
  const size_t sequence_, kv_head_, begin_, rows_;
  const cache::Position offset_;
  OnlineSoftmaxState softmax_;
};

void RunAttentionTask(const AttentionLayer& at, const Geometry& g, const AttentionPlan::Item& item,
                      Scoring scoring, const float* q, float* out) {
  switch (g.group.element) {
    case cache::ElementType::kF32:
      return AttentionTask<F32Row>(at, g, item, scoring).Run(q, out);
    case cache::ElementType::kF16:
      return AttentionTask<F16Row>(at, g, item, scoring).Run(q, out);
    case cache::ElementType::kBF16:
      return AttentionTask<BF16Row>(at, g, item, scoring).Run(q, out);
    case cache::ElementType::kQ8_0:
      return AttentionTask<Q8Row>(at, g, item, scoring).Run(q, out);
  }
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::runner::kernels {
namespace {

HWY_EXPORT(RunAttentionTask);

}  // namespace

void AttentionPlan::Prepare(std::span<const int32_t> row_begin, int32_t heads, int32_t kv_heads) {
  assert(kv_heads > 0 && heads % kv_heads == 0);
  heads_ = heads;
  items_.clear();
  for (size_t i = 0; i + 1 < row_begin.size(); ++i) {
    const int32_t queries = (row_begin[i + 1] - row_begin[i]) * (heads / kv_heads);
    for (int32_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
      for (int32_t begin = 0; begin < queries; begin += static_cast<int32_t>(kItemRows)) {
        const int32_t end = std::min(begin + static_cast<int32_t>(kItemRows), queries);
        items_.push_back({static_cast<int32_t>(i), kv_head, begin, end});
      }
    }
  }
}

void Attention(ThreadPool& pool, const AttentionLayer& at, const AttentionPlan& plan, Scoring scoring,
               std::span<const float> q, std::span<float> out) {
  const Geometry g(at, plan.heads());
  assert(g.dim <= static_cast<size_t>(g.group.latent > 0 ? kMaxLatentKeyDim : kMaxHeadDim) &&
         g.value_dim <= kMaxHeadDim);
  [[maybe_unused]] const size_t queries = static_cast<size_t>(at.row_begin.back()) * g.heads;
  assert(q.size() == queries * g.dim && out.size() == queries * g.value_dim);
  assert(scoring.sinks.empty() || scoring.sinks.size() == g.heads);
  const auto items = plan.items();
  pool.ParallelFor(items.size(), [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(RunAttentionTask)(at, g, items[task], scoring, q.data(), out.data());
  });
}

}  // namespace quire::runner::kernels
#endif  // HWY_ONCE
