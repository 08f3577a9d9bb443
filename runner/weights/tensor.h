// A tensor as it lies in a mapped file, whatever the file's format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runner/weights/data_types.h"

namespace quire::runner::weights {

std::string_view Name(DataType type);  // as ggml writes it: "Q4_K"

// Elements that are stored together: a row is a whole number of blocks. 1 for the floating-point types.
int64_t BlockElements(DataType type);

// Bytes of one row of `elements` elements. REQUIRES: elements is a multiple of BlockElements(type).
size_t RowBytes(DataType type, int64_t elements);

// A view into a mapped file; lives as long as the ModelFiles it came from. Immutable, any thread. Data is
// aligned for its element type: 4 bytes for F32, 2 for F16 and BF16; blocks lie where they lie.
struct Tensor {
  std::string name;  // as the checkpoint family names it (see model_files.h)
  DataType type = DataType::kF32;
  std::vector<int64_t> shape;       // row-major, outermost first: a linear layer is [out, in] in both formats
  std::span<const std::byte> data;  // exactly rows * RowBytes

  int64_t elements() const;
  int64_t rows() const { return shape.size() < 2 ? 1 : elements() / shape.back(); }
  int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
};

// A tensor of integers (I64 or I32), which is no weight: an order of tokens, position ids, the experts of
// each token. Lives as a Tensor does.
struct IntegerTensor {
  std::string name;
  std::vector<int64_t> shape;       // row-major, outermost first; empty for a scalar
  std::span<const std::byte> data;  // not aligned in any way
  size_t bytes = sizeof(int64_t);   // of an element: 8 or 4
};

// A tensor of a type that is no weight by itself: blocks or scales of a checkpoint in safetensors that was
// quantized elsewhere. Lives as a Tensor does.
struct RawTensor {
  std::string name;
  std::string_view dtype;           // "U8", "F8_E4M3", ...; static storage
  std::vector<int64_t> shape;       // row-major, outermost first
  std::span<const std::byte> data;  // not aligned in any way
};

}  // namespace quire::runner::weights
