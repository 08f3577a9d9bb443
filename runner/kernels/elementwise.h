// The parts of a transformer layer that treat every row, or every element, alone: norms, activations, rotary
// positions. All are row-invariant: a row's result does not depend on the other rows, their number, or the
// threads.
#pragma once

#include <cstdint>
#include <span>

#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

// y = x / sqrt(mean(x^2) + eps) * weight over rows of weight.size() elements. y may be x.
// Per-head norms see heads as rows. REQUIRES: x and y hold whole rows.
void RmsNorm(ThreadPool& pool, std::span<const float> x, std::span<const float> weight, float eps,
             std::span<float> y);

// y += x.
void Add(ThreadPool& pool, std::span<const float> x, std::span<float> y);

// Adds `bias` to each row of bias.size() elements.
void AddBias(std::span<const float> bias, std::span<float> y);

// gate = silu(gate) * up, silu(g) = g / (1 + exp(-g)).
void SiluMul(ThreadPool& pool, std::span<const float> up, std::span<float> gate);

// cos and sin [positions, frequencies] of position * frequency, the angle rounded to float32 first as the
// reference implementations do.
void RopeTable(ThreadPool& pool, std::span<const int64_t> positions, std::span<const float> frequencies,
               std::span<float> cos, std::span<float> sin);

// NeoX rotary embedding in place: in each head of x [rows, heads, head_dim] the pair (x_i, x_{i+n}), n =
// frequencies, turns by the row's angle i; dimensions from 2n on pass through. cos, sin [rows, n] from
// RopeTable. REQUIRES: 2n <= head_dim; rows = cos.size() / n.
void Rope(ThreadPool& pool, std::span<const float> cos, std::span<const float> sin, int64_t frequencies,
          int64_t head_dim, int64_t rows, std::span<float> x);

}  // namespace quire::runner::kernels
