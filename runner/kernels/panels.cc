#include "runner/kernels/panels.h"

#include <algorithm>
#include <cstring>

namespace quire::runner::kernels {
namespace {

using weights::BlockQuants;

constexpr size_t kVectors = 8;  // of a K block

// Quants of one output in one K block, four to a word.
struct KBlockQuants {
  uint32_t word[kVectors];
};

// Puts the quants of output `out` where the planes of a K block want them.
template <int kBits>
void PackKBlock(const KBlockQuants& from, size_t out, std::byte* to) {
  const auto put = [&](std::byte* plane, size_t index, uint32_t word) {
    std::memcpy(plane + (index * kPanelOuts + out) * sizeof(word), &word, sizeof(word));
  };
  // `width` bits of each quant from `shift` up, 8 / width vectors to a plane's.
  const auto plane = [&](std::byte* at, size_t width, size_t shift) {
    const uint32_t mask = ((1U << width) - 1) * 0x01010101U;
    const size_t shared = 8 / width;
    for (size_t v = 0; v < kVectors; v += shared) {
      uint32_t word = 0;
      for (size_t i = 0; i < shared; ++i) word |= (from.word[v + i] >> shift & mask) << (i * width);
      put(at, v / shared, word);
    }
  };
  if constexpr (kBits == 8) {
    for (size_t v = 0; v < kVectors; ++v) put(to, v, from.word[v]);
  } else if constexpr (kBits >= 4) {
    plane(to, 4, 0);
    if constexpr (kBits > 4) plane(to + 256, kBits - 4, 4);
  } else {
    plane(to, 2, 0);
    if constexpr (kBits == 3) plane(to + 128, 1, 2);
  }
}

void PackKBlocks(int bits, const BlockQuants& block, size_t k_blocks, size_t out, std::byte* to) {
  for (size_t k_block = 0; k_block < k_blocks; ++k_block) {
    KBlockQuants quants;
    std::memcpy(quants.word, block.quant.data() + k_block * kKBlock, sizeof(quants.word));
    std::byte* const at = to + k_block * static_cast<size_t>(bits) * 64;
    switch (bits) {
      case 8:
        PackKBlock<8>(quants, out, at);
        break;
      case 6:
        PackKBlock<6>(quants, out, at);
        break;
      case 5:
        PackKBlock<5>(quants, out, at);
        break;
      case 4:
        PackKBlock<4>(quants, out, at);
        break;
      case 3:
        PackKBlock<3>(quants, out, at);
        break;
      default:
        PackKBlock<2>(quants, out, at);
        break;
    }
  }
}

void PackScales(const PanelFormat& format, const BlockQuants& block, size_t out, std::byte* to) {
  if (format.exponent) {
    to[out] = static_cast<std::byte>(block.scale);
  } else {
    std::memcpy(to + out * 2, &block.scale, 2);
  }
  if (format.min_offset) std::memcpy(to + format.min_offset_at() + out * 2, &block.min_offset, 2);
  for (size_t group = 0; group < format.groups(); ++group) {
    const size_t at = group * kPanelOuts + out;
    to[format.group_scale_at() + at] = static_cast<std::byte>(block.group_scale[group]);
    if (format.min_offset)
      to[format.group_min_offset_at() + at] = static_cast<std::byte>(block.group_min_offset[group]);
  }
}

}  // namespace

void FillPanelRange(const std::byte* from, weights::DataType type, int64_t out, int64_t in, size_t begin,
                    size_t end, std::byte* to) {
  const PanelFormat format = PanelFormatOf(type);
  const auto rows = static_cast<size_t>(out), blocks = static_cast<size_t>(in / format.block);
  const size_t row_bytes = weights::RowBytes(type, in), block_bytes = row_bytes / std::max<size_t>(blocks, 1);
  const size_t k_blocks = static_cast<size_t>(format.block) / kKBlock, panel_bytes = PanelBytes(format, in);
  BlockQuants block;
  for (size_t panel = begin; panel < end; ++panel) {
    std::byte* const scales = to + (panel - begin) * panel_bytes;
    std::byte* const quants = scales + PanelScaleBytes(format, in);
    const size_t first = panel * kPanelOuts, outs = std::min(kPanelOuts, rows - first);
    if (outs < kPanelOuts) std::memset(scales, 0, panel_bytes);
    // Block by block: what is written stays in the first-level cache until all outputs have written theirs.
    for (size_t b = 0; b < blocks; ++b) {
      for (size_t o = 0; o < outs; ++o) {
        weights::UnpackBlock(type, from + (first + o) * row_bytes + b * block_bytes, &block);
        PackScales(format, block, o, scales + b * format.scale_bytes());
        PackKBlocks(format.bits, block, k_blocks, o, quants + b * k_blocks * format.k_block_bytes());
      }
    }
  }
}

void FillPanels(ThreadPool& pool, const std::byte* from, weights::DataType type, int64_t out, int64_t in,
                std::byte* to) {
  const size_t panel_bytes = PanelBytes(PanelFormatOf(type), in);
  pool.ParallelFor(PanelCount(out), [&](size_t panel) {
    FillPanelRange(from, type, out, in, panel, panel + 1, to + panel * panel_bytes);
  });
}

}  // namespace quire::runner::kernels
