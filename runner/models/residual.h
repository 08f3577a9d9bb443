// How a layer's parts add to the residual stream.
#pragma once

#include <cstdint>
#include <span>

#include "runner/kernels/elementwise.h"
#include "runner/models/linear.h"
#include "runner/models/pass.h"

namespace quire::runner::models {

// h += mix(norm(h)), h [rows, hidden]. `mix(x, y)` fills y from x, both of h's shape.
template <class Mix>
void AddNormed(Pass& pass, const RmsNorm& norm, std::span<float> h, const Mix& mix) {
  const std::span<float> normed = pass.work.normed.Get(static_cast<int64_t>(h.size()));
  const std::span<float> mixed = pass.work.mixed.Get(static_cast<int64_t>(h.size()));
  norm.Run(pass.pool, h, normed);
  mix(normed, mixed);
  kernels::Add(pass.pool, mixed, h);
}

}  // namespace quire::runner::models
