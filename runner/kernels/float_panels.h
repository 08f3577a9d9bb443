// Weights that are floats, laid out for products with many rows.
//
// A panel is 16 outputs: first their elements of input 0, then those of input 1 and so on, as the file's
// type. The last panels are zeros, up to whole blocks of 4 panels.
//
// An output is the sum of x[k] * w[k] in the order of k, each step one fused multiply-add where the machine
// has them. Tiles of rows and outputs only decide which sums are computed together, so the bits of an output
// depend on its row and its weights alone, and are the same with AVX-512 and AVX2.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runner/kernels/thread_pool.h"
#include "runner/weights/block_formats.h"

namespace quire::runner::kernels {

inline constexpr size_t kFloatPanelOuts = 16;
inline constexpr size_t kFloatBlockOuts = 4 * kFloatPanelOuts;

constexpr bool IsFloat(weights::DataType type) { return weights::FormatOf(type).elements == 1; }

// Whether products with panels are faster here than those with rows as they lie in a file: with AVX2.
bool UsePackedFloat();

constexpr size_t FloatBlockCount(int64_t out) {
  return (static_cast<size_t>(out) + kFloatBlockOuts - 1) / kFloatBlockOuts;
}
inline size_t FloatPanelBytes(weights::DataType type, int64_t out, int64_t in) {
  return FloatBlockCount(out) * kFloatBlockOuts * weights::RowBytes(type, in);
}

// Writes the panels of a matrix [out, in]. REQUIRES: IsFloat(type); `to` has FloatPanelBytes, all zero.
void FillFloatPanels(ThreadPool& pool, const std::byte* from, weights::DataType type, int64_t out, int64_t in,
                     std::byte* to);
// The same of blocks [begin, end) only, by this thread; `to` is where block `begin` goes, whatever it holds.
void FillFloatBlocks(const std::byte* from, weights::DataType type, int64_t out, int64_t in, size_t begin,
                     size_t end, std::byte* to);

// Blocks [begin, end) of 64 outputs of y [rows, out] = x [rows, in] times the panels.
struct FloatGemmTask {
  const std::byte* panels = nullptr;  // from block `first` on; best aligned to 64 bytes
  size_t first = 0;
  weights::DataType type = weights::DataType::kF32;
  size_t out = 0, in = 0;
  size_t begin = 0, end = 0;
  const float* x = nullptr;
  size_t rows = 0;
  float* y = nullptr;
};
void FloatGemm(const FloatGemmTask& work);

}  // namespace quire::runner::kernels
