#include "runner/models/mtp_join.h"

#include <algorithm>

namespace quire::runner::models {

void MtpJoin::Run(ForwardContext& ctx, std::span<float> h) const {
  const auto rows = static_cast<size_t>(ctx.rows());
  const size_t width = h.size() / std::max<size_t>(rows, 1);
  const std::span<float> normed = ctx.work.normed.Get(static_cast<int64_t>(h.size()));
  const std::span<float> joined = ctx.work.projected.Get(2 * static_cast<int64_t>(h.size()));
  const auto put = [&](const RmsNorm& norm, std::span<const float> from, size_t at) {
    norm.Run(ctx.pool, from, normed);
    for (size_t row = 0; row < rows; ++row) {
      std::ranges::copy(normed.subspan(row * width, width), joined.subspan((2 * row + at) * width).begin());
    }
  };
  put(token_norm, h, 0);
  put(before_norm, before, 1);
  join.Run(ctx.pool, ctx.Input(joined), h);
}

}  // namespace quire::runner::models
