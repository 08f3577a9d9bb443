#include "runner/models/mlp.h"

#include "runner/kernels/elementwise.h"

namespace quire::runner::models {

void Gate(ThreadPool& pool, Activation activation, std::span<const float> up, std::span<float> gate) {
  switch (activation) {
    case Activation::kSilu:
      return kernels::SiluMul(pool, up, gate);
    case Activation::kGelu:
      return kernels::GeluMul(pool, up, gate);
  }
}

void GatedMlp::Run(Pass& pass, std::span<const float> x, std::span<float> y) const {
  const std::span<float> gated = pass.work.gate.Get(pass.rows() * gate.weight.out);
  const std::span<float> wide = pass.work.up.Get(pass.rows() * up.weight.out);
  const kernels::MatMulInput in = pass.Input(x);
  gate.Run(pass.pool, in, gated);
  up.Run(pass.pool, in, wide);
  Gate(pass.pool, activation, wide, gated);
  down.Run(pass.pool, pass.Input(gated), y);
}

}  // namespace quire::runner::models
