// Quantized weights laid out for products with int8 activations.
//
// A panel is 16 outputs. It holds first the scales of all blocks of its rows, then their quants; a quant is
// where a vector instruction wants it: four consecutive elements of one output make a 32-bit lane, the 16
// outputs a vector of 64 bytes, the 8 vectors of 32 elements follow each other (a K block). Quants narrower
// than a byte lie in bit planes of the same form: two (four, eight) vectors share 64 bytes, the earlier in
// the lower bits. The last panel is filled up with zeros.
//
// A panel takes the bytes that the rows take in a file, within 4 %, but for types whose quants lie apart from
// their signs or several to a code: bench/results/kernel_bench.md has their ratios.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runner/kernels/thread_pool.h"
#include "runner/weights/block_formats.h"

namespace quire::runner::kernels {

inline constexpr size_t kPanelOuts = 16;
inline constexpr size_t kKBlock = 32;  // elements

// What the panels of a type hold.
struct PanelFormat : weights::QuantFormat {
  int block = 32;  // elements that share a float16 scale

  constexpr size_t groups() const { return group == 0 ? 0 : static_cast<size_t>(block / group); }
  // Data of the 16 outputs of a block: scales, min offsets, group scales, group min offsets.
  constexpr size_t min_offset_at() const { return exponent ? kPanelOuts : 2 * kPanelOuts; }
  constexpr size_t group_scale_at() const { return min_offset_at() + (min_offset ? 2 * kPanelOuts : 0); }
  constexpr size_t group_min_offset_at() const { return group_scale_at() + groups() * kPanelOuts; }
  constexpr size_t scale_bytes() const {
    return group_min_offset_at() + (min_offset ? groups() * kPanelOuts : 0);
  }
  constexpr size_t k_block_bytes() const { return static_cast<size_t>(bits) * 64; }
  bool operator==(const PanelFormat&) const = default;
};

constexpr PanelFormat PanelFormatOf(weights::DataType type) {
  const weights::BlockFormat& format = weights::FormatOf(type);
  return {format.quants, format.elements};
}

constexpr bool HasPanels(weights::DataType type) { return PanelFormatOf(type).bits != 0; }

constexpr size_t PanelCount(int64_t out) { return (static_cast<size_t>(out) + kPanelOuts - 1) / kPanelOuts; }
// Bytes of one panel: of its scales, and in total. A multiple of 64.
constexpr size_t PanelScaleBytes(const PanelFormat& format, int64_t in) {
  return (static_cast<size_t>(in / format.block) * format.scale_bytes() + 63) / 64 * 64;
}
constexpr size_t PanelBytes(const PanelFormat& format, int64_t in) {
  return PanelScaleBytes(format, in) + static_cast<size_t>(in) / kKBlock * format.k_block_bytes();
}

// Writes the panels of a matrix [out, in] that lies in a file as `type`. REQUIRES: HasPanels(type); `to` has
// room for PanelCount(out) * PanelBytes(PanelFormatOf(type), in) bytes, all zero.
void FillPanels(ThreadPool& pool, const std::byte* from, weights::DataType type, int64_t out, int64_t in,
                std::byte* to);
// The same of panels [begin, end) only, by this thread; `to` is where panel `begin` goes, whatever it holds.
void FillPanelRange(const std::byte* from, weights::DataType type, int64_t out, int64_t in, size_t begin,
                    size_t end, std::byte* to);

}  // namespace quire::runner::kernels
