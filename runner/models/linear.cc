#include "runner/models/linear.h"

#include <array>
#include <cassert>

#include "runner/kernels/elementwise.h"
#include "runner/models/linear_then.h"

namespace quire::runner::models {

void RunThen(ThreadPool& pool, const Linear& linear, const kernels::MatMulInput& x,
             const kernels::RowEpilogue& then, std::span<float> y) {
  if (linear.bias.empty()) return kernels::MatMul(pool, x, linear.weight, then, y);
  const std::span<const float> bias = linear.bias;
  kernels::MatMul(
      pool, x, linear.weight,
      [&](size_t row, size_t begin, std::span<float> values) {
        kernels::AddBias(bias.subspan(begin, values.size()), values);
        if (then) then(row, begin, values);
      },
      y);
}

void Linear::Run(ThreadPool& pool, const kernels::MatMulInput& x, std::span<float> y) const {
  if (bias.empty()) return kernels::MatMul(pool, x, weight, y);
  RunThen(pool, *this, x, nullptr, y);
}

void RunTogether(ThreadPool& pool, const kernels::MatMulInput& x, std::span<const LinearOutput> parts) {
  assert(parts.size() <= kernels::kTogetherMax);
  std::array<kernels::RowEpilogue, kernels::kTogetherMax> biases;
  std::array<kernels::MatMulTarget, kernels::kTogetherMax> targets;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Linear& linear = *parts[i].linear;
    if (!linear.bias.empty()) {
      biases[i] = [bias = std::span<const float>(linear.bias)](size_t, size_t begin,
                                                               std::span<float> values) {
        kernels::AddBias(bias.subspan(begin, values.size()), values);
      };
    }
    targets[i] = {.weight = &linear.weight, .y = parts[i].y, .then = &biases[i]};
  }
  kernels::MatMulTogether(pool, x, std::span(targets).first(parts.size()));
}

void RmsNorm::Run(ThreadPool& pool, std::span<const float> x, std::span<float> y) const {
  kernels::RmsNorm(pool, x, weight, eps, y);
}

void Norm::Run(ThreadPool& pool, std::span<const float> x, std::span<float> y) const {
  if (kind == NormKind::kLayer) return kernels::LayerNorm(pool, x, weight, bias, eps, y);
  kernels::RmsNorm(pool, x, weight, eps, y);
}

}  // namespace quire::runner::models
