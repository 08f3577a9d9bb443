// The one check both weight formats need on where tensors lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace quire::runner::weights {

struct ByteRange {
  uint64_t begin = 0;
  uint64_t end = 0;  // half-open; REQUIRES: begin <= end
  size_t owner = 0;  // index of the tensor
};

// Two tensors that share a byte, or nothing.
std::optional<std::pair<size_t, size_t>> FindOverlap(std::vector<ByteRange> ranges);

}  // namespace quire::runner::weights
