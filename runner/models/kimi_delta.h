// Kimi Delta Attention (Kimi Linear, Ling 3): a gated delta net whose state decays at a rate of its own in
// each key channel.
#pragma once

#include <span>
#include <vector>

#include "runner/models/forward_context.h"
#include "runner/models/gated_delta.h"
#include "runner/models/linear.h"

namespace quire::runner::models {

//   q, k, v = silu(conv(qkv(x)))     q, k of length 1 per head
//   decay = exp(rate * softplus(decay_up(decay_down(x)) + time_bias))     beta = sigmoid(b(x))
//   or, with a bound, exp(bound * sigmoid(rate * (decay_up(decay_down(x)) + time_bias)))
//   o = gated delta rule(q, k, v, decay, beta)
//   y = out(norm(o) * sigmoid(gate_up(gate_down(x))))     norm per head
struct KimiDelta : DeltaRule {  // shape.by_channel
  Linear q, k, v;
  Linear decay_down, decay_up, gate_down, gate_up;  // without a `down`, `up` takes x
  Linear b;
  std::vector<float> rate;       // [heads]: -exp(A_log), with a bound exp(A_log)
  float bound = 0;               // 0: none
  std::vector<float> time_bias;  // [heads, key_dim]
  RmsNorm norm;                  // [value_dim]
  Linear out;

  void GrowWidths(RowWidths& widths) const;
  void Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;
};

}  // namespace quire::runner::models
