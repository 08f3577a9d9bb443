#include "runner/models/linear.h"

#include "runner/kernels/elementwise.h"

namespace quire::runner::models {

void Linear::Run(ThreadPool& pool, const kernels::MatMulInput& x, std::span<float> y) const {
  kernels::MatMul(pool, x, weight, y);
  if (!bias.empty()) kernels::AddBias(bias, y);
}

void RmsNorm::Run(ThreadPool& pool, std::span<const float> x, std::span<float> y) const {
  kernels::RmsNorm(pool, x, weight, eps, y);
}

void Norm::Run(ThreadPool& pool, std::span<const float> x, std::span<float> y) const {
  if (kind == NormKind::kLayer) return kernels::LayerNorm(pool, x, weight, bias, eps, y);
  kernels::RmsNorm(pool, x, weight, eps, y);
}

}  // namespace quire::runner::models
