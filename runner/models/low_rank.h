// A linear layer of low rank beside another one.
#pragma once

#include <span>

#include "runner/kernels/elementwise.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"

namespace quire::runner::models {

// y += up(down(x)).
struct LowRank {
  Linear down, up;  // none: y stays as it is

  // Makes room for the rows that AddTo works in: at most `widest` numbers.
  static void GrowWidths(RowWidths& widths, int64_t rank, int64_t widest) {
    RowWidths::Grow(widths.scores, rank);
    RowWidths::Grow(widths.shared, widest);
  }

  void AddTo(ForwardContext& ctx, const kernels::MatMulInput& x, std::span<float> y) const {
    if (!down) return;
    const std::span<float> low = ctx.work.scores.Get(ctx.rows() * down.weight.out);
    const std::span<float> more = ctx.work.shared.Get(static_cast<int64_t>(y.size()));
    down.Run(ctx.pool, x, low);
    up.Run(ctx.pool, ctx.Input(low), more);
    kernels::Add(ctx.pool, more, y);
  }
};

}  // namespace quire::runner::models
