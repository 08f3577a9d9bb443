// K-quants: blocks of 256 in groups of 16 or 32, whose small integer scales share the block's float16 ones.
#include "runner/weights/block_formats.h"
#include "runner/weights/float_bits.h"
#include "runner/weights/scale_bits.h"

namespace quire::runner::weights {
namespace {

constexpr size_t kElements = 256;

unsigned Byte(std::byte byte) { return std::to_integer<unsigned>(byte); }

}  // namespace

// scales[16] (low nibble: scale, high: min offset), qs[64], d, dmin. Element e of a half of 128 is bits 2 *
// (e / 32) and up of byte e % 32 of the half's 32.
void DequantizeQ2_K(const std::byte* from, size_t blocks, float* to) {
  for (; blocks != 0; --blocks, from += 84, to += kElements) {
    const std::byte* qs = from + 16;
    const float d = LoadF16(from + 80), dmin = LoadF16(from + 82);
    for (size_t group = 0; group < 16; ++group) {
      const unsigned scales = Byte(from[group]);
      const float scale = d * static_cast<float>(scales & 15U),
                  min_offset = dmin * static_cast<float>(scales >> 4);
      const std::byte* bytes = qs + group / 8 * 32 + group % 2 * 16;
      const size_t shift = group % 8 / 2 * 2;
      for (size_t e = 0; e < 16; ++e) {
        to[group * 16 + e] = scale * static_cast<float>(Byte(bytes[e]) >> shift & 3U) - min_offset;
      }
    }
  }
}

// hmask[32], qs[64], scales[12], d. Two low bits as in Q2_K; the third is bit (element / 32) of hmask[element
// % 32].
void DequantizeQ3_K(const std::byte* from, size_t blocks, float* to) {
  for (; blocks != 0; --blocks, from += 110, to += kElements) {
    const std::byte* qs = from + 32;
    const std::byte* scales = from + 96;
    const float d = LoadF16(from + 108);
    for (size_t group = 0; group < 16; ++group) {
      const float scale = d * static_cast<float>(Q3Scale(scales, group));
      const std::byte* bytes = qs + group / 8 * 32 + group % 2 * 16;
      const std::byte* mask = from + group % 2 * 16;
      const size_t shift = group % 8 / 2 * 2, bit = group / 2;
      for (size_t e = 0; e < 16; ++e) {
        const unsigned q = (Byte(bytes[e]) >> shift & 3U) | (Byte(mask[e]) >> bit & 1U) << 2;
        to[group * 16 + e] = scale * static_cast<float>(static_cast<int>(q) - 4);
      }
    }
  }
}

// d, dmin, scales[12], qs[128]: of every 64 elements, 32 bytes hold the first half low and the second half
// high.
void DequantizeQ4_K(const std::byte* from, size_t blocks, float* to) {
  for (; blocks != 0; --blocks, from += 144, to += kElements) {
    const float d = LoadF16(from), dmin = LoadF16(from + 2);
    const GroupScales scales = UnpackGroupScales(from + 4);
    for (size_t group = 0; group < 8; ++group) {
      const float scale = d * scales.scale[group], min_offset = dmin * scales.min_offset[group];
      const std::byte* bytes = from + 16 + group / 2 * 32;
      const size_t shift = group % 2 * 4;
      for (size_t e = 0; e < 32; ++e) {
        to[group * 32 + e] = scale * static_cast<float>(Byte(bytes[e]) >> shift & 15U) - min_offset;
      }
    }
  }
}

// d, dmin, scales[12], qh[32], qs[128]: as Q4_K, with a fifth bit: bit `group` of qh[e].
void DequantizeQ5_K(const std::byte* from, size_t blocks, float* to) {
  for (; blocks != 0; --blocks, from += 176, to += kElements) {
    const float d = LoadF16(from), dmin = LoadF16(from + 2);
    const GroupScales scales = UnpackGroupScales(from + 4);
    const std::byte* high = from + 16;
    for (size_t group = 0; group < 8; ++group) {
      const float scale = d * scales.scale[group], min_offset = dmin * scales.min_offset[group];
      const std::byte* bytes = from + 48 + group / 2 * 32;
      const size_t shift = group % 2 * 4;
      for (size_t e = 0; e < 32; ++e) {
        const unsigned q = (Byte(bytes[e]) >> shift & 15U) | (Byte(high[e]) >> group & 1U) << 4;
        to[group * 32 + e] = scale * static_cast<float>(q) - min_offset;
      }
    }
  }
}

// ql[128], qh[64], 16 signed scales, d. In each half of 128 elements, group g of 32 has its low nibbles in
// bytes (g % 2) * 32 and up of the half's 64 (low nibble for g < 2) and two more bits at 2 * g of the
// half's 32.
void DequantizeQ6_K(const std::byte* from, size_t blocks, float* to) {
  for (; blocks != 0; --blocks, from += 210, to += kElements) {
    const float d = LoadF16(from + 208);
    for (size_t group = 0; group < 16; ++group) {  // of 16
      const size_t half = group / 8, g = group % 8 / 2, e0 = group % 2 * 16;
      const float scale = d * static_cast<float>(static_cast<int8_t>(from[192 + group]));
      const std::byte* low = from + half * 64 + g % 2 * 32 + e0;
      const std::byte* high = from + 128 + half * 32 + e0;
      for (size_t e = 0; e < 16; ++e) {
        const unsigned q = (Byte(low[e]) >> (g / 2 * 4) & 15U) | (Byte(high[e]) >> (2 * g) & 3U) << 4;
        to[group * 16 + e] = scale * static_cast<float>(static_cast<int>(q) - 32);
      }
    }
  }
}

}  // namespace quire::runner::weights
