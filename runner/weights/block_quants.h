// Blocks of the quantized types unpacked into small integers and their scales, for integer kernels. What an
// element stands for is in block_formats.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runner/weights/tensor.h"

namespace quire::runner::weights {

inline constexpr size_t kBlockElementsMax = 256;

// One block. `quant` is unsigned: Q8_0's are biased by 128; indices into a codebook stay indices.
struct BlockQuants {
  std::array<uint8_t, kBlockElementsMax> quant;  // in the order of the elements
  uint16_t scale = 0;                            // `d`, float16; MXFP4: the exponent byte
  uint16_t min_offset = 0;                       // `m` or `dmin`, float16
  // Scales of groups of 16 or 32 elements, after the formula's subtraction.
  std::array<int8_t, 16> group_scale;
  std::array<uint8_t, 16> group_min_offset;
};

// REQUIRES: a quantized type; `from` holds a block. Fields that the type does not have are left alone.
void UnpackBlock(DataType type, const std::byte* from, BlockQuants* to);

}  // namespace quire::runner::weights
