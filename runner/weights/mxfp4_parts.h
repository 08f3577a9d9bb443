// MXFP4 as safetensors checkpoints store it (gpt-oss): quants and scales in two tensors of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "runner/weights/model_files.h"

namespace quire::runner::weights {

struct Mxfp4Parts {
  std::string name;                   // without "_blocks" and "_scales"
  std::vector<int64_t> shape;         // [..., out, in]
  std::span<const std::byte> quants;  // [..., out, in / 32, 16], elements 2j and 2j + 1 in byte j of a block
  std::span<const std::byte> scales;  // [..., out, in / 32]

  size_t row_blocks() const { return static_cast<size_t>(shape.back()) / 32; }
  // Writes rows [first, first + rows), counted through all dimensions but the last, as blocks of
  // DataType::kMXFP4.
  void CopyRows(size_t first, size_t rows, std::byte* to) const;
};

// All of them. kBadModel names a tensor that has no partner of its shape.
api::Result<std::vector<Mxfp4Parts>> FindMxfp4Parts(const ModelFiles& files);

}  // namespace quire::runner::weights
