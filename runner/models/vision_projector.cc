#include "runner/models/vision_projector.h"

#include <algorithm>
#include <cstddef>

#include "runner/kernels/elementwise.h"
#include "runner/models/linear_then.h"

namespace quire::runner::models {

void VisionProjector::Run(ThreadPool& pool, std::span<const float> states, int64_t width,
                          std::span<const int32_t> row_of, Work& work, std::span<float> y) const {
  const auto wide = static_cast<size_t>(width), square = static_cast<size_t>(patches());
  const size_t rows = row_of.size() / square;
  const auto count = static_cast<int64_t>(rows);
  const std::span<float> gathered = work.patches.Get(static_cast<int64_t>(row_of.size()) * width);
  for (size_t i = 0; i < row_of.size(); ++i) {
    std::copy_n(states.data() + static_cast<size_t>(row_of[i]) * wide, wide, gathered.data() + i * wide);
  }
  if (before) before.Run(pool, gathered, gathered);
  std::span<float> in = gathered;
  if (join == PatchJoin::kMean) {
    in = work.joined.Get(count * width);
    std::ranges::fill(in, 0.0F);
    for (size_t i = 0; i < row_of.size(); ++i) {
      kernels::MulAdd(1, gathered.subspan(i * wide, wide), in.subspan(i / square * wide, wide));
    }
    kernels::Scale(pool, 1.0F / static_cast<float>(square), in);
  } else if (join == PatchJoin::kByValue && square > 1) {
    in = work.joined.Get(std::ssize(gathered));
    for (size_t i = 0; i < row_of.size(); ++i) {
      float* const to = in.data() + i / square * square * wide + i % square;
      for (size_t j = 0; j < wide; ++j) to[j * square] = gathered[i * wide + j];
    }
  }
  if (scale != 1) kernels::Scale(pool, scale, in);
  for (size_t i = 0; !shift.empty() && i < in.size(); ++i) {
    in[i] = (in[i] - shift[i % shift.size()]) * stretch[i % shift.size()];
  }
  if (after) after.Run(pool, in, in);
  if (fold) {
    const std::span<float> folded = work.folded.Get(count * fold.weight.out);
    fold.Run(pool, {in, count, work.quantized}, folded);
    in = folded;
  }
  if (first) {
    const std::span<float> inner = work.wide.Get(count * first.weight.out);
    RunThen(
        pool, first, {in, count, work.quantized},
        [&](size_t, size_t, std::span<float> values) { Activate(activation, values); }, inner);
    in = inner;
  }
  out.Run(pool, {in, count, work.quantized}, y);
}

int64_t VisionProjector::FloatsOf(int64_t width) const {
  return (join == PatchJoin::kByValue ? 2 : 1) * patches() * width + (join == PatchJoin::kMean ? width : 0) +
         fold.weight.out + first.weight.out;
}

}  // namespace quire::runner::models
