// Float rows to blocks: the inverse of block_formats.h, for the types that models are stored in on this
// machine.
//
// Each block is the best of a few candidates by the squared error of what it dequantizes to, with the scales
// rounded as they are stored. The error is therefore not above that of the usual one-shot rules, which are
// among the candidates or improved upon (see quantize_test.cc for figures).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runner/weights/tensor.h"

namespace quire::runner::weights {

// F32, F16, BF16 (rounded to nearest even), Q8_0, Q4_0, Q4_K, Q6_K.
bool CanQuantizeTo(DataType type);

// Writes RowBytes(type, values.size()) bytes. Values that are no numbers count as 0, infinite ones as the
// largest finite float16. REQUIRES: CanQuantizeTo(type); values.size() is a multiple of the block.
void Quantize(DataType type, std::span<const float> values, std::byte* to);

// Writes rows [first, first + rows) of `tensor` as `to`, shared out over `threads` >= 1. Memory: a float row
// per thread. REQUIRES: CanQuantizeTo(to); rows are whole blocks of `to`; `out` has the bytes of `rows` of
// them.
void ConvertRows(const Tensor& tensor, DataType to, int64_t first, int64_t rows, int threads,
                 std::span<std::byte> out);

// Whether a tensor of this name belongs to a vision tower or to what joins it to a text model, in either
// format. Few bits cost such layers more than the text model's.
bool IsOfVisionTower(std::string_view name);

}  // namespace quire::runner::weights
