// The parts of a transformer layer that treat every row, or every element, alone: norms, activations, rotary
// positions. All are batch-invariant: a row's result does not depend on the other rows, their number, or the
// threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

// y = x / sqrt(mean(x^2) + eps) * weight over rows of weight.size() elements. y may be x.
// Per-head norms see heads as rows. REQUIRES: x and y hold whole rows.
void RmsNorm(ThreadPool& pool, std::span<const float> x, std::span<const float> weight, float eps,
             std::span<float> y);

// y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias, rows as in RmsNorm. `bias` may be empty.
void LayerNorm(ThreadPool& pool, std::span<const float> x, std::span<const float> weight,
               std::span<const float> bias, float eps, std::span<float> y);

// y += x.
void Add(ThreadPool& pool, std::span<const float> x, std::span<float> y);

// y *= x.
void Mul(ThreadPool& pool, std::span<const float> x, std::span<float> y);

// Adds `bias` to each row of bias.size() elements.
void AddBias(std::span<const float> bias, std::span<float> y);

// gate = silu(gate) * up, silu(g) = g / (1 + exp(-g)).
void SiluMul(ThreadPool& pool, std::span<const float> up, std::span<float> gate);

// gate = gelu(gate) * up, the tanh approximation of gelu.
void GeluMul(ThreadPool& pool, std::span<const float> up, std::span<float> gate);

// gate = max(gate, 0) * up.
void ReluMul(ThreadPool& pool, std::span<const float> up, std::span<float> gate);

// gate = g sigmoid(slope g) * (u + shift), g = min(gate, limit), u = up between -limit and limit. `late`: g
// is gate, and the first factor is limited.
struct SwigluClamp {
  float limit = 0;  // 0: there is no clamp
  float slope = 1.702F, shift = 1;
  bool late = false;
};
void ClampedSwiglu(ThreadPool& pool, const SwigluClamp& clamp, std::span<const float> up,
                   std::span<float> gate);

// x = silu(x).
void Silu(ThreadPool& pool, std::span<float> x);

// x = gelu(x), the tanh approximation.
void Gelu(ThreadPool& pool, std::span<float> x);

// x = max(x, 0)^2.
void SquaredRelu(ThreadPool& pool, std::span<float> x);

// x = x > 0 ? positive x^2 + beta x : negative (exp(min(x, eps)) - 1 - x) + beta x (xIELU, Huang et al.
// 2024).
struct XieluShape {
  float positive = 0, negative = 0, beta = 0, eps = 0;
};
void Xielu(ThreadPool& pool, const XieluShape& shape, std::span<float> x);

// y *= sigmoid(gate).
void SigmoidMul(ThreadPool& pool, std::span<const float> gate, std::span<float> y);

// Row i of y [gate.size(), width] *= sigmoid(gate[i]).
void SigmoidMulRows(ThreadPool& pool, std::span<const float> gate, std::span<float> y);

// Row i of y [gate.size(), width] *= log(1 + exp(gate[i])).
void SoftplusMulRows(ThreadPool& pool, std::span<const float> gate, std::span<float> y);

// y *= factor.
void Scale(ThreadPool& pool, float factor, std::span<float> y);

// y = cap * tanh(y / cap). REQUIRES: cap > 0.
void SoftCap(ThreadPool& pool, float cap, std::span<float> y);

// y += factor * x, in the calling thread.
void MulAdd(float factor, std::span<const float> x, std::span<float> y);

// x [n, 2, half] apart into first and second [n, half].
void SplitHalves(ThreadPool& pool, std::span<const float> x, int64_t half, std::span<float> first,
                 std::span<float> second);

// cos and sin [positions, frequencies] of position * frequency times `magnitude`, the angle rounded to
// float32 first as the reference implementations do.
void RopeTable(ThreadPool& pool, std::span<const int64_t> positions, std::span<const float> frequencies,
               std::span<float> cos, std::span<float> sin, float magnitude = 1.0F);
// The same where frequency i belongs to the position positions[axes[i]][row].
void RopeTable(ThreadPool& pool, const std::array<std::span<const int64_t>, 3>& positions,
               std::span<const uint8_t> axes, std::span<const float> frequencies, std::span<float> cos,
               std::span<float> sin, float magnitude = 1.0F);

constexpr size_t kRopeFrequenciesMax = 256;

// Which elements of a head are rotated together, with n = frequencies.
enum class RopePairs : uint8_t {
  kHalves,       // (x_i, x_{i+n}), "NeoX"
  kAdjacent,     // (x_2i, x_2i+1) on the way in, (x_i, x_{i+n}) on the way out: rows that a GGUF has permuted
  kInterleaved,  // (x_2i, x_2i+1)
};

// Rotary embedding in place: in each head of x [rows, heads, head_dim] the i-th pair is rotated by the row's
// angle i; dimensions from 2n on pass through. cos, sin [rows, n] from RopeTable. REQUIRES: 2n <= head_dim; n
// <= kRopeFrequenciesMax; rows = cos.size() / n.
void Rope(ThreadPool& pool, std::span<const float> cos, std::span<const float> sin, int64_t frequencies,
          int64_t head_dim, int64_t rows, std::span<float> x, RopePairs pairs = RopePairs::kHalves);

}  // namespace quire::runner::kernels
