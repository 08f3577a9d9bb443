// Reads the GGUF container (versions 2 and 3, little-endian) from memory.
//
// The file is not trusted. Invariants of the result of ParseGguf, where tensors of integers are tensors too:
//  - keys and tensor names are valid UTF-8, not empty and occur once; scalar strings are valid UTF-8, strings
//    inside arrays (vocabularies) are the bytes of the file;
//  - a tensor's dimensions are positive, its element count and byte size do not overflow, its rows are whole
//    blocks, and its data lies inside the file without overlapping another tensor's;
//  - memory use is bounded by the size of the file, never by a number that the file states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/weights/tensor.h"

namespace quire::runner::weights {

// A key and its value as they lie in the file: the number of the value's type, then the value.
struct GgufPair {
  std::string_view key;
  std::span<const std::byte> typed_value;
};

struct GgufContents {
  uint32_t version = 0;
  // Key/values in file order. A float32 is kept as the shortest decimal that reads back as the same float32,
  // so that 1e-05 is 1e-05.
  std::shared_ptr<nlohmann::ordered_json> metadata;
  std::vector<GgufPair> pairs;          // the same in the file's encoding
  std::vector<Tensor> tensors;          // in file order; views into the bytes given, as the pairs are
  std::vector<IntegerTensor> integers;  // those of type I64 and I32, in file order
  std::vector<std::string> empty;       // names of tensors without elements, which are nowhere else
};

// `file` names the source in errors: kBadModel "FILE: reason". REQUIRES: `bytes` outlives what is given.
api::Result<GgufContents> ParseGguf(std::span<const std::byte> bytes, const std::string& file);

}  // namespace quire::runner::weights
