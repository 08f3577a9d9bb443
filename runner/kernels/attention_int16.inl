// Attention over keys and values that are kept as int16 (cache::ElementType::kI16): register tiles of integer
// products. Compiled once per SIMD target.
//
// A vector of a head is int16 numbers of at most kInt16Limit and one float32 scale. A query is rounded in the
// same way, and so are the weights of a tile of keys, which are first multiplied with the scales of their
// values. Sums of products are exact, so that their order does not enter:
// - a score: kInt16Limit^2 * kScoreBlock < 2^31; longer heads are cut into blocks, whose sums are added as
//   float32;
// - a tile's weighted values: kTile * kWeightLimit * kInt16Limit < 2^31.
// Numbers lie in pairs, of which one instruction adds both products: of a key numbers 2i and 2i + 1, of
// values tokens 2i and 2i + 1.

#if defined(QUIRE_RUNNER_KERNELS_ATTENTION_INT16_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_RUNNER_KERNELS_ATTENTION_INT16_INL_
#undef QUIRE_RUNNER_KERNELS_ATTENTION_INT16_INL_
#else
#define QUIRE_RUNNER_KERNELS_ATTENTION_INT16_INL_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "runner/kernels/attention.h"
#include "runner/kernels/attention_softmax.inl"
#include "runner/kernels/attention_tiles.inl"
#include "runner/kernels/cpu_features.h"
#include "runner/kernels/int16_rows.inl"
#include "runner/kernels/int8_gemm.h"
#include "runner/kernels/rows.inl"

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

constexpr float kWeightLimit = 8191;
constexpr size_t kScoreBlock = 128;
constexpr size_t kPairBytes = 2 * sizeof(int16_t);
// Numbers from one query row to the next: known to the compiler, and no multiple of a page's fraction.
constexpr size_t kQueryStride = kMaxHeadDim + 32;

using I32 = hn::RebindToSigned<F32>;
using VI32 = hn::Vec<I32>;

#if HWY_TARGET == HWY_SCALAR
struct VPairs {
  int32_t first, second;
};
HWY_INLINE VPairs LoadPairs(const std::byte* from) {
  int16_t pair[2];
  std::memcpy(pair, from, sizeof(pair));
  return {pair[0], pair[1]};
}
HWY_INLINE VPairs SetPairs(const int16_t* pair) { return {pair[0], pair[1]}; }
#else
using VPairs = hn::Vec<hn::Repartition<int16_t, F32> >;
HWY_INLINE VPairs LoadPairs(const std::byte* from) { return LoadAt(hn::Repartition<int16_t, F32>(), from); }
HWY_INLINE VPairs SetPairs(const int16_t* pair) {
  int32_t both;
  std::memcpy(&both, pair, sizeof(both));
  return hn::BitCast(hn::Repartition<int16_t, F32>(), hn::Set(I32(), both));
}
#endif

// Sums of products of pairs, one per lane. kFused: with the instruction that multiplies and adds, which the
// processor must have (HasFusedPairs()).
template <bool kFused>
struct PairSums {
  HWY_INLINE PairSums() {}  // an implicit one would not be of the target
#if HWY_TARGET == HWY_SCALAR
  VI32 sum;
  HWY_INLINE void Clear() { sum = hn::Zero(I32()); }
  HWY_INLINE void Add(const VPairs& a, const VPairs& b) {
    sum = hn::Set(I32(), hn::GetLane(sum) + a.first * b.first + a.second * b.second);
  }
  HWY_INLINE VF32 Total() const { return hn::ConvertTo(F32(), sum); }
#elif !HWY_ARCH_X86 || HWY_TARGET == HWY_EMU128  // whose instruction adds to two registers
  VI32 low, high;
  HWY_INLINE void Clear() { low = high = hn::Zero(I32()); }
  HWY_INLINE void Add(VPairs a, VPairs b) { low = hn::ReorderWidenMulAccumulate(I32(), a, b, low, high); }
  HWY_INLINE VF32 Total() const { return hn::ConvertTo(F32(), hn::RearrangeToOddPlusEven(low, high)); }
#else
  VI32 sum;
  HWY_INLINE void Clear() { sum = hn::Zero(I32()); }
  HWY_INLINE void Add(VPairs a, VPairs b) {
    VI32 none = sum;
    auto added = sum.raw;
    if constexpr (kFused) {
#if HWY_TARGET <= HWY_AVX3
      __asm__("vpdpwssd %2, %1, %0" : "+v"(added) : "v"(a.raw), "v"(b.raw));
#else
      __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(added) : "x"(a.raw), "x"(b.raw));
#endif
    } else {
      added = hn::ReorderWidenMulAccumulate(I32(), a, b, sum, none).raw;
      __asm__("" : "+x"(added));  // GCC would make the products first, which do not fit into the registers
    }
    sum = VI32{added};
  }
  HWY_INLINE VF32 Total() const { return hn::ConvertTo(F32(), sum); }
#endif
};

// Whether this processor has it, for this target, and comparisons do not leave it out.
inline bool HasFusedPairs() {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  static const bool has = HasAvx512Vnni();
  return has && PanelTargetLimit() >= PanelTarget::kAvx512;
#elif HWY_TARGET == HWY_AVX2
  static const bool has = HasAvxVnni();
  return has && PanelTargetLimit() >= PanelTarget::kAvxVnni;
#else
  return false;
#endif
}
constexpr bool kMayFuse = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2;

// Sums in registers: Arm needs two for each.
constexpr size_t kPairRows = HWY_TARGET <= HWY_AVX3 ? 12 : 6, kPairVectors = HWY_ARCH_ARM ? 1 : 2;
constexpr size_t kPairValueRows = 6, kPairValueVectors = HWY_TARGET <= HWY_AVX3 ? 4 : kPairVectors;

// A vector of keys, as many as lanes: pairs of numbers of the first, of the second, ...; then the next pairs.
struct PairColumn {
  const std::byte* at;
  size_t stride;  // bytes
  HWY_INLINE VPairs Load(size_t pair) const { return LoadPairs(at + pair * stride); }
};

// Pairs [first, last) of the values of a tile, which lie in one page; `values` is where the first one lies.
struct ValuePairs {
  const std::byte* values;
  size_t first, last;
  HWY_INLINE const std::byte* At(size_t pair, size_t dim, size_t c) const {
    return values + ((pair - first) * dim + c) * kPairBytes;
  }
};

// scores [kRows, kTile] of kWide vectors of keys. Query rows are kQueryStride apart.
template <size_t kRows, size_t kWide, bool kFused>
HWY_INLINE void ScorePairTile(const int16_t* q, const float* q_scales, size_t dim, const PairColumn* keys,
                              const float* key_scales, float* scores) {
  const F32 d;
  for (size_t block = 0; block < dim; block += kScoreBlock) {
    const size_t end = std::min(dim, block + kScoreBlock);
    PairSums<kFused> sums[kRows][kWide];
#pragma GCC unroll 12
    for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (size_t w = 0; w < kWide; ++w) sums[r][w].Clear();
    }
    for (size_t c = block; c < end; c += 2) {
      VPairs key[kWide];
#pragma GCC unroll 4
      for (size_t w = 0; w < kWide; ++w) key[w] = keys[w].Load(c / 2);
#pragma GCC unroll 12
      for (size_t r = 0; r < kRows; ++r) {
        const VPairs query = SetPairs(q + r * kQueryStride + c);
#pragma GCC unroll 4
        for (size_t w = 0; w < kWide; ++w) sums[r][w].Add(query, key[w]);
      }
    }
#pragma GCC unroll 12
    for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (size_t w = 0; w < kWide; ++w) {
        float* const to = scores + r * kTile + w * kLanes;
        VF32 total = sums[r][w].Total();
        if (block > 0) total = hn::Add(hn::Load(d, to), total);
        if (end == dim) {
          total = hn::Mul(hn::Mul(total, hn::LoadU(d, key_scales + w * kLanes)), hn::Set(d, q_scales[r]));
        }
        hn::Store(total, d, to);
      }
    }
  }
}

// For kRows rows and kWide vectors of a head from number c on: sum = sum * keep + weighted values * factor.
template <size_t kRows, size_t kWide, bool kFused>
HWY_INLINE void AddPairTile(const int16_t* weights, std::span<const ValuePairs> parts, size_t dim, size_t c,
                            const float* keep, const float* factor, float* sum) {
  const F32 d;
  PairSums<kFused> sums[kRows][kWide];
#pragma GCC unroll 12
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (size_t w = 0; w < kWide; ++w) sums[r][w].Clear();
  }
  for (const ValuePairs& part : parts) {
    for (size_t pair = part.first; pair < part.last; ++pair) {
      const std::byte* const at = part.At(pair, dim, c);
      VPairs value[kWide];
#pragma GCC unroll 4
      for (size_t w = 0; w < kWide; ++w) value[w] = LoadPairs(at + w * kLanes * kPairBytes);
#pragma GCC unroll 12
      for (size_t r = 0; r < kRows; ++r) {
        const VPairs weight = SetPairs(weights + r * kTile + 2 * pair);
#pragma GCC unroll 4
        for (size_t w = 0; w < kWide; ++w) sums[r][w].Add(weight, value[w]);
      }
    }
  }
#pragma GCC unroll 12
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (size_t w = 0; w < kWide; ++w) {
      float* const to = sum + r * dim + c + w * kLanes;
      const VF32 kept = hn::Mul(hn::LoadU(d, to), hn::Set(d, keep[r]));
      hn::StoreU(hn::MulAdd(sums[r][w].Total(), hn::Set(d, factor[r]), kept), d, to);
    }
  }
}

// The same for number c alone.
HWY_INLINE void AddPairsOfOne(const int16_t* weights, size_t rows, std::span<const ValuePairs> parts,
                              size_t dim, size_t c, const float* keep, const float* factor, float* sum) {
  for (size_t r = 0; r < rows; ++r) {
    int32_t total = 0;
    for (const ValuePairs& part : parts) {
      for (size_t pair = part.first; pair < part.last; ++pair) {
        int16_t value[2];
        std::memcpy(value, part.At(pair, dim, c), sizeof(value));
        const int16_t* const weight = weights + r * kTile + 2 * pair;
        total += weight[0] * value[0] + weight[1] * value[1];
      }
    }
    float& to = sum[r * dim + c];
    to = MulAddOne(static_cast<float>(total), factor[r], to * keep[r]);
  }
}

// shares [kTile]: what a weight of 1 of each key is in steps, `limit` for the largest of the scales of their
// values; 0 outside of [columns.first, columns.last). Returns a step, which is NaN if one of these scales is
// not finite.
HWY_INLINE float ShareSteps(const float* scales, const ScoreColumns& columns, float limit, float* shares) {
  std::fill_n(shares, kTile, 0.0F);
  std::copy(scales + columns.first, scales + columns.last, shares + columns.first);
  const F32 d;
  VF32 top = hn::Zero(d), nothing = hn::Zero(d);
  for (size_t i = columns.begin; i < columns.end; i += kLanes) {
    const VF32 scale = hn::Load(d, shares + i);
    top = hn::Max(top, scale);
    nothing = hn::Add(nothing, hn::Sub(scale, scale));
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(d, top)) + hn::GetLane(hn::SumOfLanes(d, nothing));
  const VF32 share = hn::Set(d, largest > 0 ? limit / largest : 0);
  for (size_t i = columns.begin; i < columns.end; i += kLanes) {
    hn::Store(hn::Mul(hn::Load(d, shares + i), share), d, shares + i);
  }
  return largest / limit;
}

// The integers of the query rows of one item, and of a tile of keys and values.
class Int16Tiles {
 public:
  explicit Int16Tiles(cache::ElementType /*kI16*/) {}
  static size_t Bytes(size_t elements) { return Int16Row::Bytes(elements); }
  // The row's query: float32 numbers [dim], in units of log2 of a weight.
  void SetQuery(size_t row, const float* query, size_t dim) {
    query_scales_[row] = QuantizeToInt16(query, dim, query_ + row * kQueryStride);
  }

  // Where a layer's keys and values of one KV head lie in each page.
  struct Place {
    size_t keys, values;  // offsets in bytes
    size_t page_tokens, dim;
  };
  // Reads scales and addresses of a tile of keys and values. Where pages do not hold whole vectors of keys,
  // these are copied to `copies`, [dim / 2, kTile] pairs.
  void Gather(std::span<const TilePart> parts, const Place& place, const ScoreColumns& columns,
              std::byte* copies) {
    const size_t scale_bytes = place.page_tokens * sizeof(float), stride = place.page_tokens * kPairBytes;
    const bool whole_vectors = place.page_tokens % kLanes == 0;
    value_range_ = {};
    vectors_ = parts_ = 0;
    for (const TilePart& part : parts) {
      const size_t count = part.last - part.first;
      const std::byte* const keys = part.page->base + place.keys;
      const std::byte* const values = part.page->base + place.values;
      std::memcpy(key_scales_ + part.first, keys + part.token * sizeof(float), count * sizeof(float));
      std::memcpy(value_scales_ + part.first, values + part.token * sizeof(float), count * sizeof(float));
      values_[parts_++] = {.values = values + scale_bytes + part.token / 2 * place.dim * kPairBytes,
                           .first = part.first / 2,
                           .last = (part.last + 1) / 2};
      const std::byte* const pairs = keys + scale_bytes + part.token * kPairBytes;
      if (whole_vectors) {
        const size_t before = part.first % kLanes;  // of the first vector, not seen
        for (size_t i = 0; i < before + count; i += kLanes) {
          keys_[vectors_++] = {.at = pairs + (i - before) * kPairBytes, .stride = stride};
        }
        continue;
      }
      for (size_t i = 0; i < place.dim / 2; ++i) {
        std::memcpy(copies + (i * kTile + part.first) * kPairBytes, pairs + i * stride, count * kPairBytes);
      }
    }
    for (size_t i = columns.begin; !whole_vectors && i < columns.end; i += kLanes) {
      keys_[vectors_++] = {.at = copies + i * kPairBytes, .stride = kTile * kPairBytes};
    }
  }

  // scores [rows, kTile] of the tile's vectors of keys, which begin with column `begin`.
  void Score(size_t rows, size_t dim, size_t begin, float* scores, MemoryAhead& ahead) const {
    if (kMayFuse && HasFusedPairs()) return ScoreWith<kMayFuse>(rows, dim, begin, scores, ahead);
    ScoreWith<false>(rows, dim, begin, scores, ahead);
  }

  // Turns a row's scores into integer weights relative to `largest`, of keys [first, last); returns their
  // float32 sum. What a row sees alone decides: a key's scale that it does not see does not enter.
  HWY_INLINE float Weigh(size_t row, const float* scores, const ScoreColumns& columns, float largest) {
    SetValueRange(columns);
    int16_t* const weights = weights_ + row * kTile;
    if (columns.begin % 2 != 0) weights[columns.begin - 1] = 0;
    if (columns.end % 2 != 0) weights[columns.end] = 0;
    const F32 d;
    const VF32 most = hn::Set(d, largest);
    LaneSums sums;
    for (size_t i = columns.begin; i < columns.end; i += kLanes) {
      const VF32 weight = Exp2(hn::Sub(hn::Load(d, scores + i), most));
      VF32& sum = sums.part[i / kLanes % kSumVectors];
      sum = hn::Add(sum, weight);
      const VF32 share = hn::Mul(weight, hn::Load(d, value_shares_ + i));
      hn::Store(RoundToInt16(share), hn::Rebind<int16_t, F32>(), weights + i);
    }
    factors_[row] = value_unit_;
    return TotalOf(sums.part);
  }
  // A row that sees nothing of the tile.
  void SetUnseen(size_t row, const ScoreColumns& columns) {
    std::fill(weights_ + row * kTile + columns.begin / 2 * 2,
              weights_ + row * kTile + (columns.end + 1) / 2 * 2, int16_t{0});
    factors_[row] = 0;
  }
  // What the row's weights are relative to, as a weight.
  void Lift(size_t row, float weight) { factors_[row] *= weight; }

  // sum [rows, dim] = sum * keep + weighted values.
  void AddValues(size_t rows, size_t dim, const float* keep, float* sum, MemoryAhead& ahead) const {
    if (kMayFuse && HasFusedPairs()) return AddValuesWith<kMayFuse>(rows, dim, keep, sum, ahead);
    AddValuesWith<false>(rows, dim, keep, sum, ahead);
  }

 private:
  template <bool kFused>
  void ScoreWith(size_t rows, size_t dim, size_t begin, float* scores, MemoryAhead& ahead) const {
    const auto score = [&]<size_t kSome, size_t kWide>(size_t r) HWY_ATTR {
      const int16_t* const q = query_ + r * kQueryStride;
      float* const to = scores + r * kTile + begin;
      const float* const scales = key_scales_ + begin;
      size_t w = 0;
      for (; w + kWide <= vectors_; w += kWide) {
        ScorePairTile<kSome, kWide, kFused>(q, query_scales_ + r, dim, keys_ + w, scales + w * kLanes,
                                            to + w * kLanes);
      }
      for (; w < vectors_; ++w) {
        ScorePairTile<kSome, 1, kFused>(q, query_scales_ + r, dim, keys_ + w, scales + w * kLanes,
                                        to + w * kLanes);
      }
      ahead.Next();
    };
    size_t r = 0;
    for (; r + kPairRows <= rows; r += kPairRows) score.template operator()<kPairRows, kPairVectors>(r);
    for (; r + 4 <= rows; r += 4) score.template operator()<4, kPairVectors>(r);
    for (; r + 2 <= rows; r += 2) score.template operator()<2, 4>(r);
    for (; r < rows; ++r) score.template operator()<1, 4>(r);
  }

  template <bool kFused>
  void AddValuesWith(size_t rows, size_t dim, const float* keep, float* sum, MemoryAhead& ahead) const {
    const auto add = [&]<size_t kSome>(size_t r) HWY_ATTR {
      AddPairs<kSome, kFused>(weights_ + r * kTile, {values_, parts_}, dim, keep + r, factors_ + r,
                              sum + r * dim);
      ahead.Next();
    };
    size_t r = 0;
    for (; r + kPairValueRows <= rows; r += kPairValueRows) add.template operator()<kPairValueRows>(r);
    for (; r + 4 <= rows; r += 4) add.template operator()<4>(r);
    for (; r + 2 <= rows; r += 2) add.template operator()<2>(r);
    for (; r < rows; ++r) add.template operator()<1>(r);
  }

  template <size_t kRows, bool kFused>
  static HWY_INLINE void AddPairs(const int16_t* weights, std::span<const ValuePairs> parts, size_t dim,
                                  const float* keep, const float* factors, float* sum) {
    constexpr size_t kWide = kPairValueVectors;
    size_t c = 0;
    for (; c + kWide * kLanes <= dim; c += kWide * kLanes) {
      AddPairTile<kRows, kWide, kFused>(weights, parts, dim, c, keep, factors, sum);
    }
    for (; c + kLanes <= dim; c += kLanes) {
      AddPairTile<kRows, 1, kFused>(weights, parts, dim, c, keep, factors, sum);
    }
    for (; c < dim; ++c) AddPairsOfOne(weights, kRows, parts, dim, c, keep, factors, sum);
  }

  // What a weight of 1 of each key is as an integer; 0 outside of [columns.first, columns.last).
  void SetValueRange(const ScoreColumns& columns) {
    if (columns.first == value_range_.first && columns.last == value_range_.last) return;
    value_range_ = columns;
    value_unit_ = ShareSteps(value_scales_, columns, kWeightLimit, value_shares_);
  }

  alignas(64) int16_t query_[static_cast<size_t>(AttentionPlan::kItemRows) * kQueryStride];
  alignas(64) int16_t weights_[static_cast<size_t>(AttentionPlan::kItemRows) * kTile];  // [rows, kTile]
  float query_scales_[AttentionPlan::kItemRows];
  float factors_[AttentionPlan::kItemRows];  // of a row's sum of weights times values
  alignas(64) float key_scales_[kTile] = {};
  alignas(64) float value_scales_[kTile];
  alignas(64) float value_shares_[kTile];
  PairColumn keys_[kTileVectors];
  ValuePairs values_[kTile];
  size_t vectors_ = 0, parts_ = 0;
  ScoreColumns value_range_;  // that value_shares_ are of
  float value_unit_ = 0;      // of the largest scale in it
};

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
