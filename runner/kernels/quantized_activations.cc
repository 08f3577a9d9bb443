#include "runner/kernels/quantized_activations.h"

#include <algorithm>
#include <cassert>

#include "runner/kernels/int8_gemm.h"

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/quantized_activations.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>
#include "runner/kernels/rows.inl"
// clang-format on

#ifndef QUIRE_RUNNER_KERNELS_QUANTIZED_ACTIVATIONS_ONCE_
#define QUIRE_RUNNER_KERNELS_QUANTIZED_ACTIVATIONS_ONCE_
namespace quire::runner::kernels {

// Where a row's K blocks go: see QuantizedActivations.
struct QuantizedActivationRow {
  int8_t* quants;
  float *scale, *total, *first_total, *last_total;
  int32_t *neg_sum, *neg_sum_first, *neg_sum_last;
};

}  // namespace quire::runner::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

// Adding this to a float32 of small size leaves the nearest integer, ties to even, in its low bits.
constexpr float kRoundingBias = 12'582'912.0F;  // 1.5 * 2^23
// K blocks whose largest magnitude is below are taken for zero: its inverse would not be a number.
constexpr float kSmallest = 1e-30F;

// The largest lanes of four vectors, side by side.
HWY_INLINE void StoreLargest4(VF32 a, VF32 b, VF32 c, VF32 e, float* to) {
#if HWY_TARGET == HWY_SCALAR
  const VF32 all[] = {a, b, c, e};
  for (size_t i = 0; i < 4; ++i) to[i] = hn::GetLane(all[i]);
#else
  const F32 d;
  const hn::Repartition<double, F32> d64;
  const VF32 ab = hn::Max(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const VF32 ce = hn::Max(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto ab64 = hn::BitCast(d64, ab), ce64 = hn::BitCast(d64, ce);
  const VF32 abce = hn::Max(hn::BitCast(d, hn::InterleaveLower(d64, ab64, ce64)),
                            hn::BitCast(d, hn::InterleaveUpper(d64, ab64, ce64)));
  alignas(64) float lanes[kLanes];
  hn::Store(abce, d, lanes);
  for (size_t i = 0; i < 4; ++i) {
    float largest = lanes[i];
    for (size_t j = i + 4; j < kLanes; j += 4) largest = lanes[j] > largest ? lanes[j] : largest;
    to[i] = largest;
  }
#endif
}

// Four K blocks at once, so that what is summed over lanes is summed for four. `apart` is how far the next K
// block of the row is.
HWY_INLINE void QuantizeKBlocks4(const float* x, size_t at, size_t apart, const QuantizedActivationRow& to) {
  const F32 d;
  const hn::Rebind<int32_t, F32> d32;
  const hn::Rebind<int8_t, F32> d8;
  constexpr size_t kHalf = kKBlock / 2;
  VF32 sizes[4];
  for (size_t s = 0; s < 4; ++s) {
    sizes[s] = hn::Zero(d);
    for (size_t i = 0; i < kKBlock; i += kLanes) {
      sizes[s] = hn::Max(sizes[s], hn::Abs(hn::LoadU(d, x + s * kKBlock + i)));
    }
  }
  float largest[4], first[4], last[4];
  StoreLargest4(sizes[0], sizes[1], sizes[2], sizes[3], largest);
  VF32 firsts[4], lasts[4];
  const VF32 move = hn::Set(d, kRoundingBias);
  const auto whole = hn::BitCast(d32, move);
  for (size_t s = 0; s < 4; ++s) {
    const bool zero = !(largest[s] >= kSmallest);
    const VF32 factor = hn::Set(d, zero ? 0.0F : 127.0F / largest[s]);
    to.scale[at + s * apart] = zero ? 0.0F : largest[s] / 127.0F;
    int8_t* const quants = to.quants + (at + s * apart) * kKBlock;
    firsts[s] = hn::Zero(d);
    lasts[s] = hn::Zero(d);
    for (size_t i = 0; i < kKBlock; i += kLanes) {
      const VF32 moved = hn::Add(hn::Mul(hn::LoadU(d, x + s * kKBlock + i), factor), move);
      hn::StoreU(hn::DemoteTo(d8, hn::Sub(hn::BitCast(d32, moved), whole)), d8, quants + i);
      (i < kHalf ? firsts[s] : lasts[s]) = hn::Add(i < kHalf ? firsts[s] : lasts[s], hn::Sub(moved, move));
    }
  }
  StoreSums4(d, firsts[0], firsts[1], firsts[2], firsts[3], first);
  StoreSums4(d, lasts[0], lasts[1], lasts[2], lasts[3], last);
  for (size_t s = 0; s < 4; ++s) {
    const size_t i = at + s * apart;
    const float both = first[s] + last[s];  // integers, exact
    // One number that is not finite, whether or not the maximum saw it, has left its product with the factor
    // here.
    if (!(both == both)) {
      to.scale[i] = to.total[i] = to.first_total[i] = to.last_total[i] = both;
      to.neg_sum[i] = to.neg_sum_first[i] = to.neg_sum_last[i] = 0;
      continue;
    }
    const float scale = to.scale[i];
    to.neg_sum_first[i] = -static_cast<int32_t>(first[s]);
    to.neg_sum_last[i] = -static_cast<int32_t>(last[s]);
    to.neg_sum[i] = -static_cast<int32_t>(both);
    to.total[i] = scale * both;
    to.first_total[i] = scale * first[s];
    to.last_total[i] = scale * last[s];
  }
}

// The K blocks of a row of a group of `count` rows; `at` is the index of its K block 0.
void QuantizeRow(const float* x, size_t k_blocks, size_t count, size_t at, const QuantizedActivationRow& to) {
  size_t s = 0;
  for (; s + 4 <= k_blocks; s += 4) QuantizeKBlocks4(x + s * kKBlock, at + s * count, count, to);
  for (; s < k_blocks; ++s) {  // beside three of zeros
    float one[4 * kKBlock] = {}, scale[4], totals[3][4];
    int8_t quants[4 * kKBlock];
    int32_t sums[3][4];
    std::copy_n(x + s * kKBlock, kKBlock, one);
    QuantizeKBlocks4(one, 0, 1, {quants, scale, totals[0], totals[1], totals[2], sums[0], sums[1], sums[2]});
    const size_t i = at + s * count;
    std::copy_n(quants, kKBlock, to.quants + i * kKBlock);
    to.scale[i] = scale[0];
    to.total[i] = totals[0][0];
    to.first_total[i] = totals[1][0];
    to.last_total[i] = totals[2][0];
    to.neg_sum[i] = sums[0][0];
    to.neg_sum_first[i] = sums[1][0];
    to.neg_sum_last[i] = sums[2][0];
  }
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::runner::kernels {
namespace {

HWY_EXPORT(QuantizeRow);

// Elements below which waking other threads costs more than it saves.
constexpr int64_t kSerialElements = 16'384;

template <class T>
void GrowTo(size_t size, std::vector<T>* to) {
  if (to->size() < size) to->resize(size);
}

}  // namespace

void QuantizedActivations::SplitIntoGroups(int64_t rows, std::span<const int32_t> group_breaks) {
  groups_.clear();
  const size_t group_rows = group_rows_ != 0 ? group_rows_ : BestGroupRows();
  size_t row = 0;
  const auto break_at = [&](size_t end) {
    while (row < end) {
      groups_.push_back({row, std::min(group_rows, end - row)});
      row += groups_.back().count;
    }
  };
  for (const int32_t row_break : group_breaks) break_at(static_cast<size_t>(row_break));
  break_at(static_cast<size_t>(rows));
}

void QuantizedActivations::Quantize(ThreadPool& pool, std::span<const float> x, int64_t rows, int64_t in,
                                    std::span<const int32_t> group_breaks, std::span<const int32_t> row_at) {
  assert(in % static_cast<int64_t>(kKBlock) == 0);
  assert(row_at.empty() ? x.size() == static_cast<size_t>(rows * in) : std::ssize(row_at) == rows);
  SplitIntoGroups(rows, group_breaks);
  cached_for_ = nullptr;
  k_blocks_ = static_cast<size_t>(in) / kKBlock;
  const size_t all = static_cast<size_t>(rows) * k_blocks_;
  GrowTo((all + kMaxGroupRows + 1) / 2, &quants_);
  for (std::vector<float>* floats : {&scale_, &total_, &first_total_, &last_total_}) GrowTo(all, floats);
  for (std::vector<int32_t>* sums : {&neg_sum_, &neg_sum_first_, &neg_sum_last_}) GrowTo(all, sums);

  const QuantizedActivationRow to{quants_.data()->quants, scale_.data(),       total_.data(),
                                  first_total_.data(),    last_total_.data(),  neg_sum_.data(),
                                  neg_sum_first_.data(),  neg_sum_last_.data()};
  const auto quantize = [&](size_t number) {
    const Group& group = groups_[number];
    for (size_t r = 0; r < group.count; ++r) {
      const size_t row = group.row + r, from = row_at.empty() ? row : static_cast<size_t>(row_at[row]);
      HWY_DYNAMIC_DISPATCH(QuantizeRow)
      (x.data() + from * static_cast<size_t>(in), k_blocks_, group.count, At(group) + r, to);
    }
  };
  if (rows * in <= kSerialElements) {
    for (size_t number = 0; number < groups_.size(); ++number) quantize(number);
  } else {
    pool.ParallelFor(groups_.size(), quantize);  // whole groups: their rows share cache lines
  }
}

}  // namespace quire::runner::kernels
#endif  // HWY_ONCE
