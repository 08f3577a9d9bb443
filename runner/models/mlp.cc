#include "runner/models/mlp.h"

#include "runner/kernels/elementwise.h"
#include "runner/kernels/encoder_ops.h"

namespace quire::runner::models {

void Gate(ThreadPool& pool, Activation activation, const kernels::SwigluClamp& clamp,
          std::span<const float> up, std::span<float> gate) {
  if (clamp.limit > 0) return kernels::ClampedSwiglu(pool, clamp, up, gate);
  switch (activation) {
    case Activation::kSilu:
      return kernels::SiluMul(pool, up, gate);
    case Activation::kGelu:
      return kernels::GeluMul(pool, up, gate);
    case Activation::kGeluErf:
      kernels::GeluErf(pool, gate);
      return kernels::Mul(pool, up, gate);
    case Activation::kRelu:
      return kernels::ReluMul(pool, up, gate);
    case Activation::kSquaredRelu:
      kernels::SquaredRelu(pool, gate);
      return kernels::Mul(pool, up, gate);
  }
}

void GatedMlp::Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const {
  const std::span<float> gated = ctx.work.gate.Get(ctx.rows() * gate.weight.out);
  const std::span<float> wide = ctx.work.up.Get(ctx.rows() * up.weight.out);
  const kernels::MatMulInput in = ctx.Input(x);
  RunTogether(ctx.pool, in, {{&gate, gated}, {&up, wide}});
  if (gate_scale != 1) kernels::Scale(ctx.pool, gate_scale, gated);
  gate_adapter.AddTo(ctx, in, gated);
  up_adapter.AddTo(ctx, in, wide);
  Gate(ctx.pool, activation, clamp, wide, gated);
  if (norm) norm.Run(ctx.pool, gated, gated);
  down.Run(ctx.pool, ctx.Input(gated), y);
}

void PlainMlp::Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const {
  const std::span<float> wide = ctx.work.up.Get(ctx.rows() * up.weight.out);
  up.Run(ctx.pool, ctx.Input(x), wide);
  switch (activation) {
    case PlainActivation::kGelu:
      kernels::Gelu(ctx.pool, wide);
      break;
    case PlainActivation::kGeluErf:
      kernels::GeluErf(ctx.pool, wide);
      break;
    case PlainActivation::kSilu:
      kernels::Silu(ctx.pool, wide);
      break;
    case PlainActivation::kRelu:
      kernels::Relu(ctx.pool, wide);
      break;
    case PlainActivation::kSquaredRelu:
      kernels::SquaredRelu(ctx.pool, wide);
      break;
    case PlainActivation::kXielu:
      kernels::Xielu(ctx.pool, xielu, wide);
      break;
  }
  down.Run(ctx.pool, ctx.Input(wide), y);
}

}  // namespace quire::runner::models
