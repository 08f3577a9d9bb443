#include "runner/kernels/short_conv.h"

#include <algorithm>
#include <cassert>

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/short_conv.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
#include "runner/kernels/activations.inl"
#include "runner/kernels/rows.inl"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

// Channels [c, c + count), count <= kLanes, of one sequence.
template <ConvForm kForm>
class ConvLanes {
 public:
  ConvLanes(const ShortConvArgs& args, size_t sequence, size_t c, size_t count)
      : args_(args),
        sequence_(sequence),
        channels_(static_cast<size_t>(args.channels)),
        kernel_(static_cast<size_t>(args.kernel)),
        dilation_(static_cast<size_t>(args.dilation)),
        tail_columns_((kernel_ - 1) * dilation_),
        input_(args.input.data() + static_cast<size_t>(args.at.row_begin[sequence]) * kParts * channels_ + c),
        y_(args.y.data() + static_cast<size_t>(args.at.row_begin[sequence]) * channels_ + c),
        tail_(args.at.Tail(args.at.step->Slot(sequence)) + c),
        c_(c),
        count_(count) {}

  HWY_INLINE void Run(size_t rows) {
    for (size_t t = 0; t < rows; ++t) {
      VF32 sum = args_.bias.empty() ? hn::Zero(F32()) : Load(args_.bias.data() + c_);
      for (size_t k = 0; k < kernel_; ++k) {
        sum = hn::MulAdd(Load(args_.taps.data() + k * channels_ + c_), Input(t + k * dilation_), sum);
      }
      Store(Gate(sum, t), y_ + t * channels_);
    }
    if (float* record = args_.at.Record(sequence_); record != nullptr) {
      for (size_t t = 0; t < rows; ++t)
        Store(Input(tail_columns_ + t), record + t * args_.at.record_stride() + c_);
    }
    for (const cache::StateCapture& capture : args_.at.step->Captures(sequence_)) {
      StoreTail(static_cast<size_t>(capture.after), args_.at.Tail(capture.slot) + c_);
    }
    StoreTail(rows, tail_);
  }

 private:
  static constexpr size_t kParts = kForm == ConvForm::kGated ? 3 : 1;

  HWY_INLINE VF32 Load(const float* from) const {
    return count_ == kLanes ? hn::LoadU(F32(), from) : LoadFirst(from, count_);
  }
  HWY_INLINE void Store(VF32 v, float* to) const {
    if (count_ == kLanes) {
      hn::StoreU(v, F32(), to);
    } else {
      StoreFirst(v, to, count_);
    }
  }
  // Column `at` of the tail followed by u of the new rows.
  HWY_INLINE VF32 Input(size_t at) const {
    if (at < tail_columns_) return Load(tail_ + at * channels_);
    const float* row = input_ + (at - tail_columns_) * kParts * channels_;
    if constexpr (kForm == ConvForm::kGated) {
      return hn::Mul(Load(row), Load(row + 2 * channels_));
    } else {
      return Load(row);
    }
  }
  HWY_INLINE VF32 Gate(VF32 v, size_t t) const {
    if constexpr (kForm == ConvForm::kGated) {
      return hn::Mul(Load(input_ + (3 * t + 1) * channels_), v);
    } else {
      return Silu(v);
    }
  }
  // The tail after `rows` new rows. Ascending, so that a column of the old tail is read before it is
  // overwritten.
  HWY_INLINE void StoreTail(size_t rows, float* to) const {
    for (size_t k = 0; k < tail_columns_; ++k) Store(Input(rows + k), to + k * channels_);
  }

  const ShortConvArgs& args_;
  const size_t sequence_;
  const size_t channels_, kernel_, dilation_, tail_columns_;
  const float* const input_;
  float* const y_;
  float* const tail_;
  const size_t c_, count_;
};

void ConvChannels(const ShortConvArgs& args, size_t sequence, size_t begin, size_t end) {
  const size_t rows = args.at.rows(sequence);
  if (rows == 0) return;
  for (size_t c = begin; c < end; c += kLanes) {
    const size_t count = std::min<size_t>(kLanes, end - c);
    if (args.form == ConvForm::kGated) {
      ConvLanes<ConvForm::kGated>(args, sequence, c, count).Run(rows);
    } else {
      ConvLanes<ConvForm::kSilu>(args, sequence, c, count).Run(rows);
    }
  }
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::runner::kernels {
namespace {
HWY_EXPORT(ConvChannels);
}

void ShortConv(ThreadPool& pool, const ShortConvArgs& args) {
  const size_t sequences = args.at.sequences();
  assert(args.kernel >= 1);
  if (sequences == 0 || args.channels == 0) return;
  constexpr size_t kTaskElements = 8'192;
  const auto channels = static_cast<size_t>(args.channels);
  const auto rows = static_cast<size_t>(args.at.row_begin[sequences]);
  // Channels per task: whole vectors of any target, so that tasks of a long sequence share its channels out.
  const size_t rows_per_sequence = std::max<size_t>(1, rows / sequences);
  const size_t wanted = std::max<size_t>(64, kTaskElements / rows_per_sequence / 64 * 64);
  const size_t per_task = std::min(wanted, channels);
  const size_t parts = (channels + per_task - 1) / per_task;
  const auto run = [&](size_t task) {
    const size_t begin = task % parts * per_task;
    HWY_DYNAMIC_DISPATCH(ConvChannels)(args, task / parts, begin, std::min(begin + per_task, channels));
  };
  if (rows * channels <= kTaskElements) {
    for (size_t task = 0; task < sequences * parts; ++task) run(task);
  } else {
    pool.ParallelFor(sequences * parts, run);
  }
}

}  // namespace quire::runner::kernels
#endif  // HWY_ONCE
