// Element-wise work on the outputs of a matrix product while they are in the cache of the thread that
// computed them. Batch-invariant: each output is treated alone.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "runner/kernels/matmul.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

// `values` are outputs [begin, begin + size) of a row. Called in a thread of the pool, for every output once.
using RowEpilogue = std::function<void(size_t row, size_t begin, std::span<float> values)>;

// As MatMul() of matmul.h, then `then` unless it is null.
void MatMul(ThreadPool& pool, const MatMulInput& x, const Matrix& w, const RowEpilogue& then,
            std::span<float> y);

// A product of several that share an input.
struct MatMulTarget {
  const Matrix* weight = nullptr;
  std::span<float> y;                 // [rows, weight->out]
  const RowEpilogue* then = nullptr;  // null, or for y as in MatMul()
};
inline constexpr size_t kTogetherMax = 8;

// The products of `x` with every target's weights: their tasks are shared out together, so that no thread
// waits for another between them. Bit-identical to a MatMul each. REQUIRES: at most kTogetherMax; no y
// overlaps another or x.
void MatMulTogether(ThreadPool& pool, const MatMulInput& x, std::span<const MatMulTarget> targets);

// As the functions of elementwise.h and encoder_ops.h, in the calling thread.
void SiluMul(std::span<const float> up, std::span<float> gate);
void GeluMul(std::span<const float> up, std::span<float> gate);
void Silu(std::span<float> x);
void Gelu(std::span<float> x);
void GeluErf(std::span<float> x);
void Relu(std::span<float> x);
// gate = gelu(gate) * up, the exact gelu.
void GeluErfMul(std::span<const float> up, std::span<float> gate);

}  // namespace quire::runner::kernels
