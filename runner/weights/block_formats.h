// The table of block sizes and dequantizers of every DataType.
//
// A row is blocks end to end, each with its own scales. Dequantized values are bit-identical to ggml's:
// float32 products and sums in the order of the formulas below, never fused. `d`, `m`, `dmin` are
// float16, `q` is the element's unsigned quant, `sc` and `mn` are small integers of the element's group.
//   Q4_0, Q5_0: d * (q - 8), d * (q - 16)    Q4_1, Q5_1: d * q + m          Q8_0: d * q (q signed)
//   Q2_K, Q4_K, Q5_K: (d * sc) * q - dmin * mn
//   Q3_K: (d * (sc - 32)) * (q - 4)          Q6_K: (d * sc) * (q - 32) (sc signed)
//   IQ4_NL: d * codebook[q]                  IQ4_XS: (d * (sc - 32)) * codebook[q]
//   MXFP4: 2^(e - 128) * codebook[q]         NVFP4: (e / 2) * codebook[q], e of a part of 16
//   TQ1_0, TQ2_0: d * (q - 1)                IQ1_S, IQ1_M: (d * (2 sc + 1)) * (grid[q] +- 1/8)
//   IQ2_*, IQ3_XXS: (d * (sc + 1/2) * (1/4; 1/2)) * +-grid[q]         IQ3_S: (d * (2 sc + 1)) * +-grid[q]
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runner/weights/block_layouts.h"
#include "runner/weights/tensor.h"

namespace quire::runner::weights {

enum class Codebook : uint8_t { kNone, kIq4, kMxfp4, kIq1, kIq2, kIq3Xxs, kIq3S };

// MXFP4's are twice the values of the E2M1 floating-point format, so that they are whole. IQ1's are eight
// times -1, 0 and 1, plus and then minus one. Indices of IQ2 and IQ3 are magnitudes, with the sign in the
// highest bit.
inline constexpr int8_t kCodebooks[7][16] = {
    {},
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113},
    {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12},
    {-7, 1, 9, 0, -9, -1, 7, 0},
    {8, 25, 43, 0, -8, -25, -43, 0},
    {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62},
    {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15},
};

// The smallest power of two that leaves no value of a codebook below 0 when it is added.
constexpr int ZeroPointLog2(Codebook codebook) {
  int log2 = 0;
  for (const int8_t value : kCodebooks[static_cast<size_t>(codebook)]) {
    while (value + (1 << log2) < 0) ++log2;
  }
  return log2;
}

// The quants of a type as integer kernels take them. A quant stands for (quant - 2^zero_point_log2) * scale -
// min_offset; where there is a codebook, the codebook's value stands for value * scale, and integer kernels
// add the zero point to it.
struct QuantFormat {
  int bits = 0;              // of a quant; 0: a type that has none, or no UnpackBlock()
  int zero_point_log2 = -1;  // the zero point is 1 << zero_point_log2; -1: none
  int group = 0;             // elements that share a small whole scale; 0: no such scales
  bool min_offset = false;  // per block, added; with groups it scales the groups' own min offsets, subtracted
  bool exponent = false;    // the scale is a power of two, stored as a byte
  int scale_log2 = 0;       // at most 0: float16 scales and min offsets are multiplied by 2^scale_log2
  Codebook codebook = Codebook::kNone;  // what a quant of 3 or 4 bits stands for

  // The bits of the numbers that integer kernels multiply.
  constexpr int value_bits() const { return codebook == Codebook::kNone ? bits : zero_point_log2 + 1; }
  bool operator==(const QuantFormat&) const = default;
};

struct BlockFormat {
  DataType type;
  std::string_view name;
  uint32_t ggml_id;
  int32_t elements;  // of a block
  int32_t bytes;     // of a block
  QuantFormat quants;
  // Dequantizes `blocks` blocks at any address to float32.
  void (*dequantize)(const std::byte* from, size_t blocks, float* to);
};

template <class Block>
void DequantizeBlocks(const std::byte* from, size_t blocks, float* to);

#define QUIRE_FORMAT(name, ggml_id, ...) \
  {DataType::k##name,                    \
   #name,                                \
   ggml_id,                              \
   Block##name::kElements,               \
   sizeof(Block##name),                  \
   {__VA_ARGS__},                        \
   DequantizeBlocks<Block##name>},
inline constexpr auto kBlockFormats = std::to_array<BlockFormat>({QUIRE_DATA_TYPES(QUIRE_FORMAT)});
#undef QUIRE_FORMAT

static_assert(std::ranges::all_of(kBlockFormats, [](const BlockFormat& format) {
  const QuantFormat& quants = format.quants;
  return quants.codebook == Codebook::kNone || quants.zero_point_log2 == ZeroPointLog2(quants.codebook);
}));

constexpr const BlockFormat& FormatOf(DataType type) { return kBlockFormats[static_cast<size_t>(type)]; }

// REQUIRES: `from` holds RowBytes(type, elements) bytes; `to` has room for `elements`, a multiple of the
// block.
inline void Dequantize(DataType type, const std::byte* from, int64_t elements, float* to) {
  const BlockFormat& format = FormatOf(type);
  format.dequantize(from, static_cast<size_t>(elements / format.elements), to);
}

// A block unpacked into small integers and their scales, for integer kernels. `quant` is unsigned: Q8_0's are
// biased by 128; indices into a codebook stay indices.
struct BlockQuants {
  std::array<uint8_t, 256> quant;  // in the order of the elements
  uint16_t scale = 0;              // `d`, float16; MXFP4: the exponent byte
  uint16_t min_offset = 0;         // `m` or `dmin`, float16
  // The scales of groups of 16 or 32 elements, with what the formula takes off already taken off.
  std::array<int8_t, 16> group_scale;
  std::array<uint8_t, 16> group_min_offset;  // IQ1_S: signed, as two's complement
};

// REQUIRES: a type whose quants have bits; `from` holds a block. Fields that the type does not have are left
// alone.
void UnpackBlock(DataType type, const std::byte* from, BlockQuants* to);

}  // namespace quire::runner::weights
