#include "runner/models/linear.h"

#include <array>
#include <cassert>

#include "runner/kernels/elementwise.h"
#include "runner/models/linear_then.h"

namespace quire::runner::models {

namespace {

// What follows on a product for output [begin, begin + size) of a row.
void Finish(const Linear& linear, size_t begin, std::span<float> values) {
  if (linear.scale != 1) {
    for (float& value : values) value *= linear.scale;
  }
  if (!linear.bias.empty()) kernels::AddBias(std::span(linear.bias).subspan(begin, values.size()), values);
}

}  // namespace

void RunThen(ThreadPool& pool, const Linear& linear, const kernels::MatMulInput& x,
             const kernels::RowEpilogue& then, std::span<float> y) {
  if (!linear.IsAffine()) return kernels::MatMul(pool, x, linear.weight, then, y);
  kernels::MatMul(
      pool, x, linear.weight,
      [&](size_t row, size_t begin, std::span<float> values) {
        Finish(linear, begin, values);
        if (then) then(row, begin, values);
      },
      y);
}

void Linear::Run(ThreadPool& pool, const kernels::MatMulInput& x, std::span<float> y) const {
  if (!IsAffine()) return kernels::MatMul(pool, x, weight, y);
  RunThen(pool, *this, x, nullptr, y);
}

void RunTogether(ThreadPool& pool, const kernels::MatMulInput& x, std::span<const LinearOutput> parts) {
  assert(parts.size() <= kernels::kTogetherMax);
  std::array<kernels::RowEpilogue, kernels::kTogetherMax> finishes;
  std::array<kernels::MatMulTarget, kernels::kTogetherMax> targets;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Linear& linear = *parts[i].linear;
    if (linear.IsAffine()) {
      finishes[i] = [&linear](size_t, size_t begin, std::span<float> values) {
        Finish(linear, begin, values);
      };
    }
    targets[i] = {.weight = &linear.weight, .y = parts[i].y, .then = &finishes[i]};
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
