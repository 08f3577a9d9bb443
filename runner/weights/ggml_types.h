// The tensor types a GGUF file can hold, as ggml numbers and names them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runner/weights/tensor.h"

namespace quire::runner::weights {

struct GgmlType {
  uint32_t id;
  std::string_view name;   // "Q4_K"
  int32_t block_elements;  // a row is a whole number of blocks
  int32_t block_bytes;
  std::optional<DataType> type;  // set when this build reads it
};

inline constexpr uint32_t kGgmlI32 = 26, kGgmlI64 = 27;  // of integers, which are no weights

// Null for an id that names no type (never given out, or withdrawn).
const GgmlType* FindGgmlType(uint32_t id);

// Name of a `general.file_type` value ("Q4_K_M"); empty for one that is not known.
std::string_view GgufFileTypeName(int64_t file_type);

// The `general.file_type` of that name.
std::optional<int64_t> GgufFileTypeNamed(std::string_view name);

// The `general.file_type` of a model stored mainly in `type`.
int64_t GgufFileTypeOf(DataType type);

}  // namespace quire::runner::weights
