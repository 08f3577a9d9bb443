// Quantized weights laid out for products with int8 activations.
//
// A panel is 16 outputs. It holds first the scales of all blocks of its rows, then their quants; a quant is
// where a vector instruction wants it: four consecutive elements of one output make a 32-bit lane, the 16
// outputs a vector of 64 bytes, the 8 vectors of 32 elements follow each other (a K block). Quants narrower
// than a byte lie in bit planes of the same form: two (four, eight) vectors share 64 bytes, the earlier in
// the lower bits. The last panel is filled up with zeros.
//
// A panel takes the bytes that the rows take in a file, within 3 % (docs/performance.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "runner/kernels/thread_pool.h"
#include "runner/weights/tensor.h"

namespace quire::runner::kernels {

inline constexpr size_t kPanelOuts = 16;
inline constexpr size_t kKBlock = 32;  // elements

// The number that a quant stands for is (quant - 2^zero_point_log2) * scale - min_offset, see
// weights/block_formats.h.
struct PanelFormat {
  enum class Codes : uint8_t { kNumbers, kIq4, kMxfp4 };

  int bits = 8;              // of a quant; 3, 5 and 6 have planes of 2 + 1, 4 + 1 and 4 + 2
  int zero_point_log2 = -1;  // the zero point is 1 << zero_point_log2; -1: none
  int block = 32;            // elements that share a float16 scale
  int group = 0;             // elements that share a small whole scale; 0: no such scales
  bool min_offset = false;  // per block, added; with groups it scales the groups' own min offsets, subtracted
  bool exponent = false;    // the scale is a power of two, stored as a byte
  Codes codes = Codes::kNumbers;  // what a 4-bit quant stands for, biased by 128

  constexpr size_t groups() const { return group == 0 ? 0 : static_cast<size_t>(block / group); }
  // Data of the 16 outputs of a block: scales, min offsets, group scales, group min offsets.
  constexpr size_t min_offset_at() const { return exponent ? kPanelOuts : 2 * kPanelOuts; }
  constexpr size_t group_scale_at() const { return min_offset_at() + (min_offset ? 2 * kPanelOuts : 0); }
  constexpr size_t group_min_offset_at() const { return group_scale_at() + groups() * kPanelOuts; }
  constexpr size_t scale_bytes() const {
    return group_min_offset_at() + (min_offset ? groups() * kPanelOuts : 0);
  }
  constexpr size_t k_block_bytes() const { return static_cast<size_t>(bits) * 64; }
};

constexpr PanelFormat FormatOf(weights::DataType type) {
  using enum weights::DataType;
  switch (type) {
    case kQ8_0:
      return {.bits = 8, .zero_point_log2 = 7};
    case kQ4_0:
      return {.bits = 4, .zero_point_log2 = 3};
    case kQ4_1:
      return {.bits = 4, .min_offset = true};
    case kQ5_0:
      return {.bits = 5, .zero_point_log2 = 4};
    case kQ5_1:
      return {.bits = 5, .min_offset = true};
    case kQ2_K:
      return {.bits = 2, .block = 256, .group = 16, .min_offset = true};
    case kQ3_K:
      return {.bits = 3, .zero_point_log2 = 2, .block = 256, .group = 16};
    case kQ4_K:
      return {.bits = 4, .block = 256, .group = 32, .min_offset = true};
    case kQ5_K:
      return {.bits = 5, .block = 256, .group = 32, .min_offset = true};
    case kQ6_K:
      return {.bits = 6, .zero_point_log2 = 5, .block = 256, .group = 16};
    case kIQ4_NL:
      return {.bits = 4, .zero_point_log2 = 7, .codes = PanelFormat::Codes::kIq4};
    case kIQ4_XS:
      return {.bits = 4, .zero_point_log2 = 7, .block = 256, .group = 32, .codes = PanelFormat::Codes::kIq4};
    case kMXFP4:
      return {.bits = 4, .zero_point_log2 = 7, .exponent = true, .codes = PanelFormat::Codes::kMxfp4};
    case kF32:
    case kF16:
    case kBF16:
      break;
  }
  return {.bits = 0};
}

constexpr bool HasPanels(weights::DataType type) { return FormatOf(type).bits != 0; }

constexpr size_t PanelCount(int64_t out) { return (static_cast<size_t>(out) + kPanelOuts - 1) / kPanelOuts; }
// Bytes of one panel: of its scales, and in total. A multiple of 64.
constexpr size_t PanelScaleBytes(const PanelFormat& format, int64_t in) {
  return (static_cast<size_t>(in / format.block) * format.scale_bytes() + 63) / 64 * 64;
}
constexpr size_t PanelBytes(const PanelFormat& format, int64_t in) {
  return PanelScaleBytes(format, in) + static_cast<size_t>(in) / kKBlock * format.k_block_bytes();
}

// Writes the panels of a matrix [out, in] that lies in a file as `type`. REQUIRES: HasPanels(type); `to` has
// room for PanelCount(out) * PanelBytes(FormatOf(type), in) bytes, all zero.
void FillPanels(ThreadPool& pool, const std::byte* from, weights::DataType type, int64_t out, int64_t in,
                std::byte* to);

}  // namespace quire::runner::kernels
