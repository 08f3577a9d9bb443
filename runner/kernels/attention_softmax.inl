// Softmax over tiles of scores, for attention.cc. Compiled once per SIMD target.
//
// Scores are in units of log2, so that a weight is a power of two: queries are multiplied with scale *
// log2(e) before their products with keys. A weight depends on its score and the largest one of its row only.

#if defined(QUIRE_RUNNER_KERNELS_ATTENTION_SOFTMAX_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_RUNNER_KERNELS_ATTENTION_SOFTMAX_INL_
#undef QUIRE_RUNNER_KERNELS_ATTENTION_SOFTMAX_INL_
#else
#define QUIRE_RUNNER_KERNELS_ATTENTION_SOFTMAX_INL_
#endif

#include <algorithm>
#include <cstddef>

#include "runner/kernels/attention.h"
#include "runner/kernels/rows.inl"

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

constexpr float kLog2OfE = 1.44269504F;
constexpr float kUnseen = -1e30F;

// 2^x of x <= 0, within 1.1 units in the last place; 0 below 2^-126.5, so that unseen keys weigh exactly
// nothing.
HWY_INLINE VF32 Exp2(VF32 x) {
  const F32 d;
  const hn::RebindToSigned<F32> d32;
  x = hn::Max(x, hn::Set(d, -127.0F));
  // At this size a float32 has no fraction: the sum is x rounded, plus 127, in its lowest bits.
  const VF32 moved_by = hn::Set(d, 1.5F * (1 << 23) + 127);
  const VF32 moved = hn::Add(x, moved_by);
  const VF32 f = hn::Sub(x, hn::Sub(moved, moved_by));  // [-0.5, 0.5]
  VF32 power = hn::Set(d, 0.000154531634F);
  power = hn::MulAdd(power, f, hn::Set(d, 0.00133908633F));
  power = hn::MulAdd(power, f, hn::Set(d, 0.00961808302F));
  power = hn::MulAdd(power, f, hn::Set(d, 0.0555035695F));
  power = hn::MulAdd(power, f, hn::Set(d, 0.240226507F));
  power = hn::MulAdd(power, f, hn::Set(d, 0.693147182F));
  power = hn::MulAdd(power, f, hn::Set(d, 1.0F));
  return hn::Mul(power, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(d32, moved))));
}

// What queries are multiplied with.
inline float QueryFactor(const Scoring& scoring) {
  return scoring.soft_cap > 0 ? scoring.scale / scoring.soft_cap : scoring.scale * kLog2OfE;
}

// scores [begin, end) = cap * log2(e) * tanh(scores); whole vectors.
HWY_INLINE void CapScores(float* scores, size_t begin, size_t end, float cap) {
  const F32 d;
  const VF32 outer = hn::Set(d, cap * kLog2OfE);
  for (size_t i = begin; i < end; i += kLanes) {
    hn::Store(hn::Mul(outer, hn::Tanh(d, hn::Load(d, scores + i))), d, scores + i);
  }
}

// scores [begin, end) less slope * the distance from the query; whole vectors. The distance is `distance` of
// column 0, and 1 less for each further column. The slope is in units of log2.
HWY_INLINE void ApplySlope(float* scores, size_t begin, size_t end, float slope, float distance) {
  const F32 d;
  const VF32 by = hn::Set(d, slope);
  for (size_t i = begin; i < end; i += kLanes) {
    const VF32 away = hn::Sub(hn::Set(d, distance - static_cast<float>(i)), hn::Iota(d, 0));
    hn::Store(hn::NegMulAdd(by, away, hn::Load(d, scores + i)), d, scores + i);
  }
}

// Columns of a row of scores: whole vectors [begin, end), of which it sees keys [first, last).
struct ScoreColumns {
  size_t begin, end;
  size_t first, last;
};

// Marks what the row does not see; returns the largest score.
HWY_INLINE float LargestScore(float* scores, const ScoreColumns& columns) {
  const F32 d;
  if (columns.first != columns.begin || columns.last != columns.end) {
    std::fill(scores + columns.begin, scores + columns.first, kUnseen);
    std::fill(scores + columns.last, scores + columns.end, kUnseen);
  }
  VF32 top = hn::Set(d, kUnseen);
  for (size_t i = columns.begin; i < columns.end; i += kLanes) top = hn::Max(top, hn::Load(d, scores + i));
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

// Turns scores into weights relative to `max`; returns their sum, in which column i goes to sum i of
// kSumLanes wherever `begin` is.
HWY_INLINE float Weigh(float* scores, size_t begin, size_t end, float max) {
  const F32 d;
  const VF32 most = hn::Set(d, max);
  LaneSums sums;
  for (size_t i = begin; i < end; i += kLanes) {
    const VF32 weight = Exp2(hn::Sub(hn::Load(d, scores + i), most));
    hn::Store(weight, d, scores + i);
    VF32& sum = sums.part[i / kLanes % kSumVectors];
    sum = hn::Add(sum, weight);
  }
  return TotalOf(sums.part);
}

// 2^x, bit for bit as a lane of Exp2().
HWY_INLINE float Exp2One(float x) { return hn::GetLane(Exp2(hn::Set(F32(), x))); }

// Sums of a row over some keys: of weights relative to the largest score, and of weighted values.
struct RowSums {
  float max = 0;
  float weight = 0;         // 0 = no key
  float* values = nullptr;  // [value_dim]
};

// Adds a later segment's sums to those of all earlier ones. The order of segments is what bits depend on.
HWY_INLINE void AddSegment(const RowSums& segment, size_t value_dim, RowSums& total) {
  if (segment.weight == 0.0F) return;
  const float max = total.weight == 0.0F ? segment.max : std::max(total.max, segment.max);
  const float keep = total.weight == 0.0F ? 0.0F : Exp2One(total.max - max);
  const float add = Exp2One(segment.max - max);
  const VF32 keeps = hn::Set(F32(), keep), adds = hn::Set(F32(), add);
  ForEachElement(
      value_dim, total.values,
      [keeps, adds](VF32 old, VF32 more) HWY_ATTR { return hn::MulAdd(more, adds, hn::Mul(old, keeps)); },
      total.values, segment.values);
  total.weight = total.weight * keep + segment.weight * add;
  total.max = max;
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
