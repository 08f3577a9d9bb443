// How a layer's parts add to the residual stream.
#pragma once

#include <cstdint>
#include <span>

#include "runner/kernels/elementwise.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"

namespace quire::runner::models {

// h += mix(norm(h)), h [rows, hidden]. `mix(x, y)` fills y from x, both of h's shape.
template <class Mix>
void AddPreNormResidual(ForwardContext& ctx, const RmsNorm& norm, std::span<float> h, const Mix& mix) {
  const std::span<float> normed = ctx.work.normed.Get(static_cast<int64_t>(h.size()));
  const std::span<float> mixed = ctx.work.mixed.Get(static_cast<int64_t>(h.size()));
  norm.Run(ctx.pool, h, normed);
  mix(normed, mixed);
  kernels::Add(ctx.pool, mixed, h);
}

}  // namespace quire::runner::models
