#include "runner/kernels/quantized_rows.h"

#include <algorithm>
#include <cassert>

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/quantized_rows.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>
#include "runner/kernels/rows.inl"
// clang-format on

#ifndef QUIRE_RUNNER_KERNELS_QUANTIZED_STEP_
#define QUIRE_RUNNER_KERNELS_QUANTIZED_STEP_
namespace quire::runner::kernels {

struct QuantizedStep {
  float scale = 0;
  int32_t first = 0, last = 0;  // sums of the first and of the last 16 quants
};

}  // namespace quire::runner::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

// Adding this to a float32 of small size leaves the nearest whole number, ties to even, in its low bits.
constexpr float kToWhole = 12'582'912.0F;  // 1.5 * 2^23
// Steps whose largest magnitude is below are taken for zero: its inverse would not be a number.
constexpr float kSmallest = 1e-30F;

void QuantizeStep(const float* x, int8_t* quants, QuantizedStep* to) {
  const F32 d;
  const hn::Rebind<int32_t, F32> d32;
  const hn::Rebind<int8_t, F32> d8;
  VF32 largest = hn::Zero(d);
  for (size_t i = 0; i < kStep; i += kLanes) largest = hn::Max(largest, hn::Abs(hn::LoadU(d, x + i)));
  const float size = hn::GetLane(hn::MaxOfLanes(d, largest));
  const bool zero = !(size >= kSmallest);
  const VF32 factor = hn::Set(d, zero ? 0.0F : 127.0F / size);
  to->scale = zero ? 0.0F : size / 127.0F;
  auto first = hn::Zero(d32), last = hn::Zero(d32);
  const auto whole = hn::BitCast(d32, hn::Set(d, kToWhole));
  for (size_t i = 0; i < kStep; i += kLanes) {
    const VF32 moved = hn::Add(hn::Mul(hn::LoadU(d, x + i), factor), hn::Set(d, kToWhole));
    const auto quant = hn::Sub(hn::BitCast(d32, moved), whole);
    hn::StoreU(hn::DemoteTo(d8, quant), d8, quants + i);
    (i < kStep / 2 ? first : last) = hn::Add(i < kStep / 2 ? first : last, quant);
  }
  to->first = hn::GetLane(hn::SumOfLanes(d32, first));
  to->last = hn::GetLane(hn::SumOfLanes(d32, last));
}

// Steps [0, steps) of a row of a group of `count` rows; `at` is the index of its step 0.
void QuantizeRow(const float* x, size_t steps, size_t count, size_t at, int8_t* quants, float* scale,
                 int32_t* minus_first, int32_t* minus_last) {
  for (size_t s = 0; s < steps; ++s, at += count) {
    QuantizedStep step;
    QuantizeStep(x + s * kStep, quants + at * kStep, &step);
    scale[at] = step.scale;
    minus_first[at] = -step.first;
    minus_last[at] = -step.last;
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
constexpr size_t kRowsPerTask = 4;

template <class T>
void GrowTo(size_t size, std::vector<T>* to) {
  if (to->size() < size) to->resize(size);
}

}  // namespace

void QuantizedRows::SplitIntoGroups(int64_t rows, std::span<const int32_t> cuts) {
  groups_.clear();
  size_t row = 0;
  const auto cut_at = [&](size_t end) {
    while (row < end) {
      groups_.push_back({row, std::min(kGroupRows, end - row)});
      row += groups_.back().count;
    }
  };
  for (const int32_t cut : cuts) cut_at(static_cast<size_t>(cut));
  cut_at(static_cast<size_t>(rows));
}

void QuantizedRows::Quantize(ThreadPool& pool, std::span<const float> x, int64_t rows, int64_t in,
                             std::span<const int32_t> cuts) {
  assert(in % static_cast<int64_t>(kStep) == 0 && x.size() == static_cast<size_t>(rows * in));
  SplitIntoGroups(rows, cuts);
  owner_ = nullptr;
  steps_ = static_cast<size_t>(in) / kStep;
  const size_t all = static_cast<size_t>(rows) * steps_;
  GrowTo(all * kStep, &quants_);
  for (std::vector<float>* floats : {&scale_, &total_, &first_total_, &last_total_}) GrowTo(all, floats);
  for (std::vector<int32_t>* sums : {&minus_sum_, &minus_first_, &minus_last_}) GrowTo(all, sums);

  const auto quantize = [&](const Group& group, size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      const size_t at = At(group) + r;
      HWY_DYNAMIC_DISPATCH(QuantizeRow)
      (x.data() + (group.row + r) * static_cast<size_t>(in), steps_, group.count, at, quants_.data(),
       scale_.data(), minus_first_.data(), minus_last_.data());
      for (size_t s = 0, i = at; s < steps_; ++s, i += group.count) {
        minus_sum_[i] = minus_first_[i] + minus_last_[i];
        total_[i] = scale_[i] * static_cast<float>(-minus_sum_[i]);
        first_total_[i] = scale_[i] * static_cast<float>(-minus_first_[i]);
        last_total_[i] = scale_[i] * static_cast<float>(-minus_last_[i]);
      }
    }
  };
  if (rows * in <= kSerialElements) {
    for (const Group& group : groups_) quantize(group, 0, group.count);
    return;
  }
  constexpr size_t kTasks = kGroupRows / kRowsPerTask;  // of a group
  pool.ParallelFor(groups_.size() * kTasks, [&](size_t task) {
    const Group& group = groups_[task / kTasks];
    const size_t begin = task % kTasks * kRowsPerTask;
    quantize(group, begin, std::min(begin + kRowsPerTask, group.count));
  });
}

}  // namespace quire::runner::kernels
#endif  // HWY_ONCE
