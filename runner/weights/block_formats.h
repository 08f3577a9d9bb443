// The table of block sizes and dequantizers of every DataType.
//
// A row is blocks end to end, each with its own scales. Dequantized values are bit-identical to ggml's:
// float32 products and sums in the order of the formulas below, never fused. `d`, `m`, `dmin` are
// float16, `q` is the element's unsigned quant, `sc` and `mn` are small integers of the element's group.
//   Q4_0, Q5_0: d * (q - 8), d * (q - 16)    Q4_1, Q5_1: d * q + m          Q8_0: d * q (q signed)
//   Q2_K, Q4_K, Q5_K: (d * sc) * q - dmin * mn
//   Q3_K: (d * (sc - 32)) * (q - 4)          Q6_K: (d * sc) * (q - 32) (sc signed)
//   IQ4_NL: d * codebook[q]                  IQ4_XS: (d * (sc - 32)) * codebook[q]
//   MXFP4: 2^(e - 128) * codebook[q]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runner/weights/tensor.h"

namespace quire::runner::weights {

// Dequantizes `blocks` blocks at any address to float32.
using Dequantizer = void(const std::byte* from, size_t blocks, float* to);

Dequantizer DequantizeF32, DequantizeF16, DequantizeBF16;                                    // plain
Dequantizer DequantizeQ4_0, DequantizeQ4_1, DequantizeQ5_0, DequantizeQ5_1, DequantizeQ8_0;  // of 32
Dequantizer DequantizeQ2_K, DequantizeQ3_K, DequantizeQ4_K, DequantizeQ5_K, DequantizeQ6_K;  // of 256
Dequantizer DequantizeIQ4_NL, DequantizeIQ4_XS, DequantizeMXFP4;  // of 4-bit indices into a codebook

struct BlockFormat {
  DataType type;
  std::string_view name;
  int32_t elements;  // of a block
  int32_t bytes;     // of a block
  Dequantizer* dequantize;
};

inline constexpr auto kBlockFormats = std::to_array<BlockFormat>({
    {DataType::kF32, "F32", 1, 4, DequantizeF32},
    {DataType::kF16, "F16", 1, 2, DequantizeF16},
    {DataType::kBF16, "BF16", 1, 2, DequantizeBF16},
    {DataType::kQ4_0, "Q4_0", 32, 18, DequantizeQ4_0},
    {DataType::kQ4_1, "Q4_1", 32, 20, DequantizeQ4_1},
    {DataType::kQ5_0, "Q5_0", 32, 22, DequantizeQ5_0},
    {DataType::kQ5_1, "Q5_1", 32, 24, DequantizeQ5_1},
    {DataType::kQ8_0, "Q8_0", 32, 34, DequantizeQ8_0},
    {DataType::kQ2_K, "Q2_K", 256, 84, DequantizeQ2_K},
    {DataType::kQ3_K, "Q3_K", 256, 110, DequantizeQ3_K},
    {DataType::kQ4_K, "Q4_K", 256, 144, DequantizeQ4_K},
    {DataType::kQ5_K, "Q5_K", 256, 176, DequantizeQ5_K},
    {DataType::kQ6_K, "Q6_K", 256, 210, DequantizeQ6_K},
    {DataType::kIQ4_NL, "IQ4_NL", 32, 18, DequantizeIQ4_NL},
    {DataType::kIQ4_XS, "IQ4_XS", 256, 136, DequantizeIQ4_XS},
    {DataType::kMXFP4, "MXFP4", 32, 17, DequantizeMXFP4},
});

constexpr const BlockFormat& FormatOf(DataType type) { return kBlockFormats[static_cast<size_t>(type)]; }

// REQUIRES: `from` holds RowBytes(type, elements) bytes; `to` has room for `elements`, a multiple of the
// block.
inline void Dequantize(DataType type, const std::byte* from, int64_t elements, float* to) {
  const BlockFormat& format = FormatOf(type);
  format.dequantize(from, static_cast<size_t>(elements / format.elements), to);
}

}  // namespace quire::runner::weights
