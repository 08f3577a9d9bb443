// Rows of one tensor type as rows of another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runner/weights/tensor.h"

namespace quire::runner::weights {

// Writes rows [first, first + rows) of `tensor` as `to`, shared out over `threads` >= 1. Memory: a float row
// per thread. REQUIRES: CanQuantizeTo(to); rows are whole blocks of `to`; `out` has the bytes of `rows` of
// them.
void ConvertRows(const Tensor& tensor, DataType to, int64_t first, int64_t rows, int threads,
                 std::span<std::byte> out);

}  // namespace quire::runner::weights
