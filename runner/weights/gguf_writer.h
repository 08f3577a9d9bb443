// Writes GGUF files (version 3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/weights/output_file.h"
#include "runner/weights/tensor.h"

namespace quire::runner::weights {

// One file, one thread: keys, then tensors, then Write.
class GgufWriter {
 public:
  // A key with its value as another file encodes it: the type's number, then the value.
  void Add(std::string_view key, std::span<const std::byte> typed_value);
  void AddUint32(std::string_view key, uint32_t value);
  void AddText(std::string_view key, std::string_view value);
  // Tensors are numbered in this order. REQUIRES: rows are whole blocks of the type.
  void AddTensor(std::string_view name, DataType type, const std::vector<int64_t>& shape);
  // Numbered with the others.
  void AddIntegers(const IntegerTensor& tensor);

  // Fills rows [first, first + rows) of a tensor as they lie in the file; `data` is rows * RowBytes.
  using Fill = std::function<void(size_t tensor, int64_t first, int64_t rows, std::span<std::byte> data)>;

  // Tensor data is requested in pieces of about `piece_bytes`, which is also the memory used. The caller
  // finishes the file, where what it filled in is a model.
  void WriteTo(OutputFile& file, const Fill& fill, size_t piece_bytes = kPieceBytes) const;
  // WriteTo() and Finish().
  api::Result<void> Write(OutputFile file, const Fill& fill, size_t piece_bytes = kPieceBytes) const;

 private:
  static constexpr size_t kPieceBytes = size_t{16} << 20;
  struct Info {
    int64_t rows;
    size_t row_bytes;
  };

  void AddInfo(std::string_view name, uint32_t ggml_type, const std::vector<int64_t>& shape,
               size_t row_bytes);

  std::string keys_;  // encoded
  uint64_t key_count_ = 0;
  std::string infos_;  // encoded
  std::vector<Info> tensors_;
  uint64_t data_bytes_ = 0;  // of the tensors so far, each padded
};

}  // namespace quire::runner::weights
