// A factor of attention's results, from the layer's input.
#pragma once

#include <cstdint>
#include <span>

#include "runner/kernels/elementwise.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"

namespace quire::runner::models {

// attended *= sigmoid(gate(x)) or softplus(gate(x)), one factor for each number of a row or for each head.
struct OutputGate {
  enum class Kind : uint8_t { kNone, kSigmoid, kSoftplus };

  Kind kind = Kind::kNone;
  Linear linear;  // [heads * value_dim, hidden] or [heads, hidden]

  explicit operator bool() const { return kind != Kind::kNone; }
  // gate [rows, linear's outputs], attended [rows, heads, value_dim].
  void Apply(ForwardContext& ctx, std::span<const float> gate, std::span<float> attended) const {
    if (kind == Kind::kSoftplus) return kernels::SoftplusMulRows(ctx.pool, gate, attended);
    if (gate.size() == attended.size()) return kernels::SigmoidMul(ctx.pool, gate, attended);
    kernels::SigmoidMulRows(ctx.pool, gate, attended);
  }
};

}  // namespace quire::runner::models
