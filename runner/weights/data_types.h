// The table of the types that weights are stored in.
//
// A new type is one row here, its block (block_layouts.h) and DequantizeBlock() of it (dequantize.cc,
// dequantize_grids.cc). A type with panels has UnpackBlock() too (unpack.cc, unpack_grids.cc), one that
// models are quantized to QuantizeBlock() (quantize.cc).
#pragma once

#include <cstdint>

// ROW(name, ggml's id, fields of QuantFormat (block_formats.h)...): the name is ggml's, and those of the
// enumerator and the block are made of it. Without fields: no panels.
#define QUIRE_DATA_TYPES(ROW)                                                                                \
  ROW(F32, 0)                                                                                                \
  ROW(F16, 1)                                                                                                \
  ROW(BF16, 30)                                                                                              \
  ROW(Q4_0, 2, .bits = 4, .zero_point_log2 = 3)                                                              \
  ROW(Q4_1, 3, .bits = 4, .min_offset = true)                                                                \
  ROW(Q5_0, 6, .bits = 5, .zero_point_log2 = 4)                                                              \
  ROW(Q5_1, 7, .bits = 5, .min_offset = true)                                                                \
  ROW(Q8_0, 8, .bits = 8, .zero_point_log2 = 7)                                                              \
  ROW(Q2_K, 10, .bits = 2, .group = 16, .min_offset = true)                                                  \
  ROW(Q3_K, 11, .bits = 3, .zero_point_log2 = 2, .group = 16)                                                \
  ROW(Q4_K, 12, .bits = 4, .group = 32, .min_offset = true)                                                  \
  ROW(Q5_K, 13, .bits = 5, .group = 32, .min_offset = true)                                                  \
  ROW(Q6_K, 14, .bits = 6, .zero_point_log2 = 5, .group = 16)                                                \
  ROW(IQ4_NL, 20, .bits = 4, .zero_point_log2 = 7, .codebook = Codebook::kIq4)                               \
  ROW(IQ4_XS, 23, .bits = 4, .zero_point_log2 = 7, .group = 32, .codebook = Codebook::kIq4)                  \
  ROW(MXFP4, 39, .bits = 4, .zero_point_log2 = 4, .exponent = true, .codebook = Codebook::kMxfp4)            \
  ROW(IQ2_XXS, 16, .bits = 3, .zero_point_log2 = 6, .group = 32, .scale_log2 = -3,                           \
      .codebook = Codebook::kIq2)                                                                            \
  ROW(IQ2_XS, 17, .bits = 3, .zero_point_log2 = 6, .group = 16, .scale_log2 = -3,                            \
      .codebook = Codebook::kIq2)                                                                            \
  ROW(IQ3_XXS, 18, .bits = 4, .zero_point_log2 = 6, .group = 32, .scale_log2 = -2,                           \
      .codebook = Codebook::kIq3Xxs)                                                                         \
  ROW(IQ1_S, 19, .bits = 2, .zero_point_log2 = 0, .group = 32, .min_offset = true, .scale_log2 = -3)         \
  ROW(IQ3_S, 21, .bits = 4, .zero_point_log2 = 4, .group = 32, .codebook = Codebook::kIq3S)                  \
  ROW(IQ2_S, 22, .bits = 3, .zero_point_log2 = 6, .group = 16, .scale_log2 = -3, .codebook = Codebook::kIq2) \
  ROW(IQ1_M, 29, .bits = 3, .zero_point_log2 = 4, .group = 16, .scale_log2 = -3, .codebook = Codebook::kIq1) \
  ROW(TQ1_0, 34, .bits = 2, .zero_point_log2 = 0)                                                            \
  ROW(TQ2_0, 35, .bits = 2, .zero_point_log2 = 0)                                                            \
  ROW(NVFP4, 40)

namespace quire::runner::weights {

#define QUIRE_ENUMERATOR(name, ...) k##name,
enum class DataType : uint8_t { QUIRE_DATA_TYPES(QUIRE_ENUMERATOR) };
#undef QUIRE_ENUMERATOR

}  // namespace quire::runner::weights
