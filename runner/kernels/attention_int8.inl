// Attention over keys and values that are kept as q8_0 (cache::ElementType::kQ8_0): products of integers, as
// in attention_int16.inl. Compiled once per SIMD target.
//
// A block of 32 numbers is int8 and one float16 scale. A query is rounded to int16 with one scale. A score is
// the sum, over blocks, of the block's exact integer sum times its scale, times the query's. Of a tile of
// keys, the weights times the scales of a block of their values are rounded to kInt8WeightLimit steps of the
// largest, and multiplied with the block.
//
// Sums of products stay below 2^24, so that float32 has them exactly, too: kInt16Limit * 128 * 32, and
// kInt8WeightLimit * 128 * kTile. Many rows multiply pairs of int16, which are made of a tile once; a few
// rows multiply what lies in the page as float32 numbers without a fraction. Both are bit-identical.

#if defined(QUIRE_RUNNER_KERNELS_ATTENTION_INT8_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_RUNNER_KERNELS_ATTENTION_INT8_INL_
#undef QUIRE_RUNNER_KERNELS_ATTENTION_INT8_INL_
#else
#define QUIRE_RUNNER_KERNELS_ATTENTION_INT8_INL_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "runner/kernels/attention.h"
#include "runner/kernels/attention_int16.inl"
#include "runner/kernels/attention_softmax.inl"
#include "runner/kernels/attention_tiles.inl"
#include "runner/kernels/int16_rows.inl"
#include "runner/kernels/rows.inl"

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

constexpr float kInt8WeightLimit = 2047;
constexpr size_t kQ8Numbers = Q8Row::kBlock;
constexpr size_t kQ8BlocksMax = kMaxHeadDim / kQ8Numbers;
// Vectors of a block's numbers that are summed together.
constexpr size_t kBlockVectors = kPairVectors;

// Fewer rows multiply what lies in the page.
constexpr size_t kFewRows = 24;

// Whole numbers of at most 2^15, rounded as RoundToInt16() does.
HWY_INLINE VF32 RoundToWhole(VF32 v) {
  const VF32 moved_by = hn::Set(F32(), 1.5F * (1 << 23));
  return hn::Sub(hn::Add(v, moved_by), moved_by);
}

HWY_INLINE VF32 LoadInt8(const std::byte* from) {
  const hn::Rebind<int32_t, F32> d32;
  return hn::ConvertTo(F32(), hn::PromoteTo(d32, LoadAt(hn::Rebind<int8_t, F32>(), from)));
}

// A vector of keys as it lies in its page: number c of each without its scale.
struct Int8Column {
  const std::byte* quants;
  size_t stride;  // tokens of a page
  HWY_INLINE VF32 Load(size_t c) const { return LoadInt8(quants + c * stride); }
};

// Keys or values of a tile of which a page has some, and where they lie in the tile.
struct Int8Part {
  const std::byte* at;  // of values: the first one's block 0; of keys: the first one's first number
  size_t first, last;
};

// The integers of the query rows of one item, and of a tile of keys and values.
class Int8Tiles {
 public:
  explicit Int8Tiles(cache::ElementType /*kQ8_0*/) {}
  static size_t Bytes(size_t elements) { return Q8Row::Bytes(elements); }
  // The row's query: float32 numbers [dim], in units of log2 of a weight.
  void SetQuery(size_t row, const float* query, size_t dim) {
    int16_t* const numbers = query_ + row * kQueryStride;
    query_scales_[row] = QuantizeToInt16(query, dim, numbers);
    if (row >= kFewRows) return;
    for (size_t c = 0; c < dim; ++c) few_query_[row * kQueryStride + c] = static_cast<float>(numbers[c]);
  }

  // Reads scales and addresses of a tile of keys and values for `rows` rows. Where these are many, or pages
  // do not hold whole vectors of keys, both are copied as pairs: keys to [dim / 2, kTile], values to [kTile /
  // 2, dim].
  void Gather(std::span<const TilePart> parts, const Int16Tiles::Place& place, const ScoreColumns& columns,
              size_t rows, std::byte* key_pairs, std::byte* value_pairs) {
    blocks_ = place.dim / kQ8Numbers;
    few_ = rows < kFewRows && place.page_tokens % kLanes == 0;
    first_pair_ = columns.first / 2;
    vectors_ = parts_ = 0;
    for (const TilePart& part : parts) GatherPart(part, place);
    for (size_t b = 0; b < blocks_; ++b) ConvertScales(halves_[0][b], key_scales_[b]);
    if (few_) return;
    // Sums of what a column without a key held before might overflow.
    if (columns.first != columns.begin || columns.last != columns.end) {
      std::memset(key_pairs, 0, place.dim / 2 * kTile * kPairBytes);
    }
    for (size_t i = 0; i < parts_; ++i) {
      PairKeys(key_parts_[i], place, key_pairs);
      PairValues(value_parts_[i], place, value_pairs);
    }
    for (size_t i = columns.begin; i < columns.end; i += kLanes) {
      pair_keys_[vectors_++] = {.at = key_pairs + i * kPairBytes, .stride = kTile * kPairBytes};
    }
    pair_values_ = {.values = value_pairs + first_pair_ * place.dim * kPairBytes,
                    .first = first_pair_,
                    .last = (columns.last + 1) / 2};
  }

  // scores [rows, kTile] of the tile's vectors of keys, which begin with column `begin`.
  void Score(size_t rows, size_t begin, float* scores, MemoryAhead& ahead) const {
    if (few_) return ScoreFew(rows, begin, scores, ahead);
    if (kMayFuse && HasFusedPairs()) return ScorePairs<kMayFuse>(rows, begin, scores, ahead);
    ScorePairs<false>(rows, begin, scores, ahead);
  }

  // Turns a row's scores into weights relative to `largest`, of keys [first, last); returns their sum.
  HWY_INLINE float Weigh(size_t row, float* scores, const ScoreColumns& columns, float largest) {
    seen_[row] = columns;
    return HWY_NAMESPACE::Weigh(scores, columns.begin, columns.end, largest);
  }
  // A row that sees nothing of the tile; its weights are 0.
  void SetUnseen(size_t row, const ScoreColumns& columns) {
    seen_[row] = columns;
    seen_[row].first = seen_[row].last = columns.begin;
    lifts_[row] = 0;
  }
  // What the row's weights are relative to, as a weight.
  void Lift(size_t row, float weight) { lifts_[row] = weight; }

  // sum [rows, dim] = sum * keep + weighted values; `weights` [rows, kTile].
  void AddValues(size_t rows, size_t dim, const float* weights, const float* keep, float* sum,
                 MemoryAhead& ahead) {
    for (size_t b = 0; b < blocks_; ++b) {
      // Not where they were gathered: a vector of what was just stored number by number waits for all of
      // them.
      ConvertScales(halves_[1][b], value_scales_);
      shares_of_ = {};
      for (size_t r = 0; r < rows; ++r) RoundWeights(r, weights + r * kTile);
      AddBlock(rows, dim, b, keep, sum, ahead);
    }
  }

 private:
  void GatherPart(const TilePart& part, const Int16Tiles::Place& place) {
    const size_t count = part.last - part.first, stride = place.page_tokens;
    const std::byte* const keys = part.page->base + place.keys;
    const std::byte* const quants = keys + 2 * blocks_ * stride + part.token;
    const std::byte* const values = part.page->base + place.values + part.token * Q8Row::Bytes(place.dim);
    key_parts_[parts_] = {quants, part.first, part.last};
    value_parts_[parts_++] = {values, part.first, part.last};
    for (size_t b = 0; b < blocks_; ++b) {
      std::memcpy(halves_[0][b] + part.first, keys + 2 * (b * stride + part.token), 2 * count);
      for (size_t i = 0; i < count; ++i) {
        std::memcpy(halves_[1][b] + part.first + i,
                    values + i * Q8Row::Bytes(place.dim) + b * Q8Row::kBlockBytes, 2);
      }
    }
    if (!few_) return;
    const size_t before = part.first % kLanes;  // of the first vector, not seen
    for (size_t i = 0; i < before + count; i += kLanes) {
      few_keys_[vectors_++] = {.quants = quants - before + i, .stride = stride};
    }
  }

  static HWY_INLINE void ConvertScales(const uint16_t* halves, float* to) {
    const F16Row::Block from{reinterpret_cast<const std::byte*>(halves)};
    for (size_t i = 0; i < kTile; i += kLanes) hn::Store(from.Load(i), F32(), to + i);
  }

  // An int8 as it is stored.
  static HWY_INLINE int16_t SignedOf(std::byte stored) {
    return static_cast<int16_t>((std::to_integer<int>(stored) ^ 0x80) - 0x80);
  }

  static void PairKeys(const Int8Part& part, const Int16Tiles::Place& place, std::byte* to) {
    const size_t count = part.last - part.first;
    for (size_t c = 0; c < place.dim; c += 2) {
      const std::byte* const even = part.at + c * place.page_tokens;
      const std::byte* const odd = even + place.page_tokens;
      auto* const pairs = reinterpret_cast<int16_t*>(to + (c / 2 * kTile + part.first) * kPairBytes);
      for (size_t i = 0; i < count; ++i) {
        pairs[2 * i] = SignedOf(even[i]);
        pairs[2 * i + 1] = SignedOf(odd[i]);
      }
    }
  }
  static void PairValues(const Int8Part& part, const Int16Tiles::Place& place, std::byte* to) {
    const size_t bytes = Q8Row::Bytes(place.dim);
    for (size_t token = part.first; token < part.last; ++token) {
      const std::byte* from = part.at + (token - part.first) * bytes + 2;
      auto* pairs = reinterpret_cast<int16_t*>(to + token / 2 * place.dim * kPairBytes) + token % 2;
      for (size_t b = 0; b < place.dim / kQ8Numbers;
           ++b, from += Q8Row::kBlockBytes, pairs += 2 * kQ8Numbers) {
        for (size_t c = 0; c < kQ8Numbers; ++c) pairs[2 * c] = SignedOf(from[c]);
      }
    }
  }

  // Stores what block b adds to the scores of a row and a vector of keys.
  HWY_INLINE void StoreScore(VF32 sum, size_t b, size_t row, size_t column, float* to) const {
    const F32 d;
    const VF32 scale = hn::LoadU(d, key_scales_[b] + column);
    VF32 total = b == 0 ? hn::Mul(sum, scale) : hn::MulAdd(sum, scale, hn::Load(d, to));
    if (b + 1 == blocks_) total = hn::Mul(total, hn::Set(d, query_scales_[row]));
    hn::Store(total, d, to);
  }

  template <size_t kRows, size_t kWide>
  HWY_INLINE void ScoreFewTile(size_t row, size_t w, size_t begin, float* scores) const {
    const F32 d;
    for (size_t b = 0; b < blocks_; ++b) {
      VF32 sums[kRows][kWide];
#pragma GCC unroll 8
      for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (size_t v = 0; v < kWide; ++v) sums[r][v] = hn::Zero(d);
      }
      for (size_t c = b * kQ8Numbers; c < (b + 1) * kQ8Numbers; ++c) {
        VF32 key[kWide];
#pragma GCC unroll 4
        for (size_t v = 0; v < kWide; ++v) key[v] = few_keys_[w + v].Load(c);
#pragma GCC unroll 8
        for (size_t r = 0; r < kRows; ++r) {
          const VF32 query = hn::Set(d, few_query_[(row + r) * kQueryStride + c]);
#pragma GCC unroll 4
          for (size_t v = 0; v < kWide; ++v) sums[r][v] = hn::MulAdd(query, key[v], sums[r][v]);
        }
      }
#pragma GCC unroll 8
      for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (size_t v = 0; v < kWide; ++v) {
          const size_t column = begin + (w + v) * kLanes;
          StoreScore(sums[r][v], b, row + r, column, scores + (row + r) * kTile + column);
        }
      }
    }
  }

  void ScoreFew(size_t rows, size_t begin, float* scores, MemoryAhead& ahead) const {
    const auto score = [&]<size_t kSome, size_t kWide>(size_t r) HWY_ATTR {
      size_t w = 0;
      for (; w + kWide <= vectors_; w += kWide) ScoreFewTile<kSome, kWide>(r, w, begin, scores);
      for (; w < vectors_; ++w) ScoreFewTile<kSome, 1>(r, w, begin, scores);
      ahead.Next();
    };
    size_t r = 0;
    for (; r + 4 <= rows; r += 4) score.template operator()<4, 2>(r);
    for (; r + 2 <= rows; r += 2) score.template operator()<2, 4>(r);
    for (; r < rows; ++r) score.template operator()<1, 4>(r);
  }

  template <size_t kRows, size_t kWide, bool kFused>
  HWY_INLINE void ScorePairsTile(size_t row, size_t w, size_t begin, float* scores) const {
    const int16_t* const q = query_ + row * kQueryStride;
    for (size_t b = 0; b < blocks_; ++b) {
      PairSums<kFused> sums[kRows][kWide];
#pragma GCC unroll 12
      for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (size_t v = 0; v < kWide; ++v) sums[r][v].Clear();
      }
      for (size_t c = b * kQ8Numbers; c < (b + 1) * kQ8Numbers; c += 2) {
        VPairs key[kWide];
#pragma GCC unroll 4
        for (size_t v = 0; v < kWide; ++v) key[v] = pair_keys_[w + v].Load(c / 2);
#pragma GCC unroll 12
        for (size_t r = 0; r < kRows; ++r) {
          const VPairs query = SetPairs(q + r * kQueryStride + c);
#pragma GCC unroll 4
          for (size_t v = 0; v < kWide; ++v) sums[r][v].Add(query, key[v]);
        }
      }
#pragma GCC unroll 12
      for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (size_t v = 0; v < kWide; ++v) {
          const size_t column = begin + (w + v) * kLanes;
          StoreScore(sums[r][v].Total(), b, row + r, column, scores + (row + r) * kTile + column);
        }
      }
    }
  }

  template <bool kFused>
  void ScorePairs(size_t rows, size_t begin, float* scores, MemoryAhead& ahead) const {
    const auto score = [&]<size_t kSome, size_t kWide>(size_t r) HWY_ATTR {
      size_t w = 0;
      for (; w + kWide <= vectors_; w += kWide) ScorePairsTile<kSome, kWide, kFused>(r, w, begin, scores);
      for (; w < vectors_; ++w) ScorePairsTile<kSome, 1, kFused>(r, w, begin, scores);
      ahead.Next();
    };
    size_t r = 0;
    for (; r + kPairRows <= rows; r += kPairRows) score.template operator()<kPairRows, kPairVectors>(r);
    for (; r + 4 <= rows; r += 4) score.template operator()<4, kPairVectors>(r);
    for (; r + 2 <= rows; r += 2) score.template operator()<2, 4>(r);
    for (; r < rows; ++r) score.template operator()<1, 4>(r);
  }

  // What a weight of 1 of each key is in steps, for the block of value_scales_; 0 outside of [columns.first,
  // columns.last).
  void SetShares(const ScoreColumns& columns) {
    if (columns.first == shares_of_.first && columns.last == shares_of_.last) return;
    shares_of_ = columns;
    unit_ = ShareSteps(value_scales_, columns, kInt8WeightLimit, shares_);
  }

  // The row's integer weights of the block of value_scales_.
  HWY_INLINE void RoundWeights(size_t row, const float* weights) {
    const ScoreColumns& columns = seen_[row];
    int16_t* const pairs = weights_ + row * kTile;
    float* const few = few_weights_ + row * kTile;
    if (columns.first == columns.last) {
      factors_[row] = 0;
      if (few_) {
        std::fill_n(few, kTile, 0.0F);
      } else {
        std::fill_n(pairs, kTile, int16_t{0});
      }
      return;
    }
    SetShares(columns);
    factors_[row] = unit_ * lifts_[row];
    const F32 d;
    if (!few_ && columns.begin % 2 != 0) pairs[columns.begin - 1] = 0;
    if (!few_ && columns.end % 2 != 0) pairs[columns.end] = 0;
    for (size_t i = columns.begin; i < columns.end; i += kLanes) {
      const VF32 share = hn::Mul(hn::Load(d, weights + i), hn::Load(d, shares_ + i));
      if (few_) {
        hn::Store(RoundToWhole(share), d, few + i);
      } else {
        hn::Store(RoundToInt16(share), hn::Rebind<int16_t, F32>(), pairs + i);
      }
    }
  }

  // Keys are added to several sums in turn, which are exact, so that additions need not wait for each other.
  template <size_t kRows>
  HWY_INLINE void AddFewTile(size_t row, size_t dim, size_t b, const float* keep, float* sum) const {
    constexpr size_t kTurns = 4 / kRows;
    const F32 d;
    const size_t bytes = Q8Row::Bytes(dim);
    for (size_t c = 0; c < kQ8Numbers; c += kBlockVectors * kLanes) {
      VF32 sums[kTurns][kRows][kBlockVectors];
#pragma GCC unroll 4
      for (auto& of_turn : sums) {
#pragma GCC unroll 4
        for (auto& of_row : of_turn) {
#pragma GCC unroll 4
          for (VF32& one : of_row) one = hn::Zero(d);
        }
      }
      const auto add = [&](VF32(&to)[kRows][kBlockVectors], const std::byte* from, size_t key) HWY_ATTR {
        VF32 value[kBlockVectors];
#pragma GCC unroll 4
        for (size_t v = 0; v < kBlockVectors; ++v) value[v] = LoadInt8(from + v * kLanes);
#pragma GCC unroll 4
        for (size_t r = 0; r < kRows; ++r) {
          const VF32 weight = hn::Set(d, few_weights_[(row + r) * kTile + key]);
#pragma GCC unroll 4
          for (size_t v = 0; v < kBlockVectors; ++v) to[r][v] = hn::MulAdd(weight, value[v], to[r][v]);
        }
      };
      for (size_t p = 0; p < parts_; ++p) {
        const Int8Part& part = value_parts_[p];
        const std::byte* from = part.at + b * Q8Row::kBlockBytes + 2 + c;
        size_t key = part.first;
        for (; key + kTurns <= part.last; key += kTurns, from += kTurns * bytes) {
#pragma GCC unroll 4
          for (size_t t = 0; t < kTurns; ++t) add(sums[t], from + t * bytes, key + t);
        }
        for (; key < part.last; ++key, from += bytes) add(sums[0], from, key);
      }
#pragma GCC unroll 4
      for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (size_t v = 0; v < kBlockVectors; ++v) {
          VF32 total = sums[0][r][v];
#pragma GCC unroll 4
          for (size_t t = 1; t < kTurns; ++t) total = hn::Add(total, sums[t][r][v]);
          float* const to = sum + (row + r) * dim + b * kQ8Numbers + c + v * kLanes;
          const VF32 kept = hn::Mul(hn::LoadU(d, to), hn::Set(d, keep[row + r]));
          hn::StoreU(hn::MulAdd(total, hn::Set(d, factors_[row + r]), kept), d, to);
        }
      }
    }
  }

  void AddFew(size_t rows, size_t dim, size_t b, const float* keep, float* sum, MemoryAhead& ahead) const {
    size_t r = 0;
    for (; r + 4 <= rows; r += 4) AddFewTile<4>(r, dim, b, keep, sum);
    for (; r + 2 <= rows; r += 2) AddFewTile<2>(r, dim, b, keep, sum);
    for (; r < rows; ++r) AddFewTile<1>(r, dim, b, keep, sum);
    ahead.Next();
  }

  void AddBlock(size_t rows, size_t dim, size_t b, const float* keep, float* sum, MemoryAhead& ahead) const {
    if (few_) return AddFew(rows, dim, b, keep, sum, ahead);
    if (kMayFuse && HasFusedPairs()) return AddPairs<kMayFuse>(rows, dim, b, keep, sum, ahead);
    AddPairs<false>(rows, dim, b, keep, sum, ahead);
  }

  template <bool kFused>
  void AddPairs(size_t rows, size_t dim, size_t b, const float* keep, float* sum, MemoryAhead& ahead) const {
    const auto add = [&]<size_t kSome>(size_t r) HWY_ATTR {
      for (size_t c = b * kQ8Numbers; c < (b + 1) * kQ8Numbers; c += kBlockVectors * kLanes) {
        AddPairTile<kSome, kBlockVectors, kFused>(weights_ + r * kTile, {&pair_values_, 1}, dim, c, keep + r,
                                                  factors_ + r, sum + r * dim);
      }
      ahead.Next();
    };
    size_t r = 0;
    for (; r + kPairRows <= rows; r += kPairRows) add.template operator()<kPairRows>(r);
    for (; r + 4 <= rows; r += 4) add.template operator()<4>(r);
    for (; r + 2 <= rows; r += 2) add.template operator()<2>(r);
    for (; r < rows; ++r) add.template operator()<1>(r);
  }

  static constexpr auto kRowsMax = static_cast<size_t>(AttentionPlan::kItemRows);
  alignas(64) int16_t query_[kRowsMax * kQueryStride];
  alignas(64) float few_query_[kFewRows * kQueryStride];
  alignas(64) int16_t weights_[kRowsMax * kTile];    // [rows, kTile], of one block
  alignas(64) float few_weights_[kFewRows * kTile];  // the same of a few rows
  float query_scales_[kRowsMax];
  float factors_[kRowsMax];  // of a row's sum of weights times values
  float lifts_[kRowsMax];
  ScoreColumns seen_[kRowsMax];
  uint16_t halves_[2][kQ8BlocksMax][kTile] = {};  // scales of keys and values, as they are stored
  alignas(64) float key_scales_[kQ8BlocksMax][kTile];
  alignas(64) float value_scales_[kTile];  // of the block whose values are added
  alignas(64) float shares_[kTile];
  ScoreColumns shares_of_;  // that shares_ are of
  float unit_ = 0;          // of the largest scale in it
  size_t blocks_ = 0;
  bool few_ = false;
  Int8Column few_keys_[kTileVectors];
  PairColumn pair_keys_[kTileVectors];
  Int8Part key_parts_[kTile], value_parts_[kTile];
  ValuePairs pair_values_;
  size_t first_pair_ = 0, vectors_ = 0, parts_ = 0;
};

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
