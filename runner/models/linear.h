// The layers that treat every row alone: linear maps and norms.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "runner/kernels/matmul.h"

namespace quire::runner::models {

// y = scale x W^T + b.
struct Linear {
  kernels::Matrix weight;   // [out, in]; without data where a model has no such layer
  std::vector<float> bias;  // [out], or empty
  float scale = 1;

  explicit operator bool() const { return weight.data != nullptr; }
  // Whether there is more to do than a product.
  bool IsAffine() const { return !bias.empty() || scale != 1; }
  void Run(ThreadPool& pool, const kernels::MatMulInput& x, std::span<float> y) const;
};

// A layer of several that share an input.
struct LinearOutput {
  const Linear* linear = nullptr;
  std::span<float> y;
};
// Runs them at once: without waits between them. At most kernels::kTogetherMax.
void RunTogether(ThreadPool& pool, const kernels::MatMulInput& x, std::span<const LinearOutput> parts);
inline void RunTogether(ThreadPool& pool, const kernels::MatMulInput& x,
                        std::initializer_list<LinearOutput> parts) {
  RunTogether(pool, x, std::span(parts.begin(), parts.size()));
}

// y = x / sqrt(mean(x^2) + eps) * weight.
struct RmsNorm {
  std::vector<float> weight;  // empty where a model has no such norm
  float eps = 0;

  explicit operator bool() const { return !weight.empty(); }
  // Rows of weight.size() elements; y may be x.
  void Run(ThreadPool& pool, std::span<const float> x, std::span<float> y) const;
};

// A decoder layer's norm, of the kind that its family has.
enum class NormKind : uint8_t {
  kRms,
  kZeroCenteredRms,    // an RMS norm whose weights are stored with 1 subtracted in Hugging Face checkpoints
  kLayer,              // y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias
  kZeroCenteredLayer,  // the same, stored likewise
  kPlainLayer,         // a layer norm without weights and bias
  kPlainRms,           // an RMS norm without weights
};
struct Norm {
  NormKind kind = NormKind::kRms;
  std::vector<float> weight;  // empty where a layer has no such norm
  std::vector<float> bias;    // of layer norms; or empty
  float eps = 0;

  explicit operator bool() const { return !weight.empty(); }
  // Rows of weight.size() elements; y may be x.
  void Run(ThreadPool& pool, std::span<const float> x, std::span<float> y) const;
};

}  // namespace quire::runner::models
