// Reads the safetensors container from memory: 8 bytes little-endian header length, a JSON header, raw data.
//
// Nothing in the file is trusted. Invariants of what ParseSafetensors gives: names are valid UTF-8 and occur
// once; dimensions are positive; a tensor's data lies inside the file, has exactly the bytes of its dtype and
// shape, and touches no other tensor's. Memory taken is bounded by the header's real bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/weights/tensor.h"

namespace quire::runner::weights {

// Any dtype of the format, readable as weights or not (goldens and checkpoints also hold integers).
struct SafetensorsEntry {
  std::string name;
  std::string_view dtype;           // "F32", "I64", ...; static storage
  std::optional<DataType> type;     // set for the dtypes weights may have
  std::vector<int64_t> shape;       // row-major; empty for a scalar
  std::span<const std::byte> data;  // not aligned in any way
};

// Entries in header order. `file` names the source in errors: kBadModel "FILE: reason".
// REQUIRES: `bytes` outlives the entries.
api::Result<std::vector<SafetensorsEntry>> ParseSafetensors(std::span<const std::byte> bytes,
                                                            const std::string& file);

}  // namespace quire::runner::weights
