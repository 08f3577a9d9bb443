#include "runner/weights/dequantize_grids.h"

#include <cmath>
#include <cstdint>

#include "runner/weights/block_formats.h"
#include "runner/weights/float_bits.h"
#include "runner/weights/unpack_grids.h"

namespace quire::runner::weights {
namespace {

constexpr size_t kElements = 256;
constexpr float kDelta = 0.125F;  // IQ1

// Values of a codebook times the scale of their group. All products are exact, so that those of ggml in its
// order are bit-identical.
template <DataType kType, class Block>
void DequantizeCodebook(const Block& block, float* to) {
  constexpr QuantFormat kFormat = FormatOf(kType).quants;
  constexpr float kPart = 1.0F / static_cast<float>(1 << -kFormat.scale_log2);
  constexpr auto kGroup = static_cast<size_t>(kFormat.group);
  BlockQuants quants{};
  UnpackBlock(block, &quants);
  const float d = F16ToFloat32(quants.scale) * kPart;
  const int8_t* const values = kCodebooks[static_cast<size_t>(kFormat.codebook)];
  for (size_t e = 0; e < kElements; ++e) {
    to[e] =
        d * static_cast<float>(quants.group_scale[e / kGroup]) * static_cast<float>(values[quants.quant[e]]);
  }
}

// -1, 0 and 1.
template <class Block>
void DequantizeDigits(const Block& block, float* to) {
  BlockQuants quants{};
  UnpackBlock(block, &quants);
  const float d = F16ToFloat32(quants.scale);
  for (size_t e = 0; e < kElements; ++e) to[e] = d * static_cast<float>(quants.quant[e] - 1);
}

// Half of an unsigned E4M3 number, since the codebook is doubled; 0x7F is no number and counts as 0.
float HalfE4M3(unsigned bits) {
  if (bits == 0x7F) return 0;
  const unsigned exponent = bits >> 3 & 15U, fraction = bits & 7U;
  const float value =
      exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                    : std::ldexp(1.0F + static_cast<float>(fraction) / 8, static_cast<int>(exponent) - 7);
  return value * 0.5F;
}

}  // namespace

void DequantizeBlock(const BlockIQ2_XXS& block, float* to) {
  DequantizeCodebook<DataType::kIQ2_XXS>(block, to);
}
void DequantizeBlock(const BlockIQ2_XS& block, float* to) {
  DequantizeCodebook<DataType::kIQ2_XS>(block, to);
}
void DequantizeBlock(const BlockIQ2_S& block, float* to) { DequantizeCodebook<DataType::kIQ2_S>(block, to); }
void DequantizeBlock(const BlockIQ3_XXS& block, float* to) {
  DequantizeCodebook<DataType::kIQ3_XXS>(block, to);
}
void DequantizeBlock(const BlockIQ3_S& block, float* to) { DequantizeCodebook<DataType::kIQ3_S>(block, to); }
void DequantizeBlock(const BlockIQ1_M& block, float* to) { DequantizeCodebook<DataType::kIQ1_M>(block, to); }
void DequantizeBlock(const BlockTQ1_0& block, float* to) { DequantizeDigits(block, to); }
void DequantizeBlock(const BlockTQ2_0& block, float* to) { DequantizeDigits(block, to); }

// A group's scale is eight times that of the formula, and the delta is a min offset of one.
void DequantizeBlock(const BlockIQ1_S& block, float* to) {
  BlockQuants quants{};
  UnpackBlock(block, &quants);
  const float d = F16ToFloat32(quants.scale) * kDelta;
  for (size_t e = 0; e < kElements; ++e) {
    const float scale = d * static_cast<float>(quants.group_scale[e / 32]);
    const bool negative = static_cast<int8_t>(quants.group_min_offset[e / 32]) > 0;
    to[e] = scale * (static_cast<float>(quants.quant[e] - 1) + (negative ? -kDelta : kDelta));
  }
}

void DequantizeBlock(const BlockNVFP4& block, float* to) {
  const int8_t* values = kCodebooks[static_cast<size_t>(Codebook::kMxfp4)];
  for (size_t part = 0; part < 4; ++part) {
    const float scale = HalfE4M3(std::to_integer<unsigned>(block.scales[part]));
    for (size_t j = 0; j < 8; ++j) {
      const auto byte = std::to_integer<unsigned>(block.qs[part * 8 + j]);
      to[part * 16 + j] = scale * static_cast<float>(values[byte & 15U]);
      to[part * 16 + j + 8] = scale * static_cast<float>(values[byte >> 4]);
    }
  }
}

}  // namespace quire::runner::weights
