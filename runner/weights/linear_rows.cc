// Rows of a quantized layer, from the codes of its file to the blocks that it becomes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "runner/weights/block_formats.h"
#include "runner/weights/block_layouts.h"
#include "runner/weights/float_bits.h"
#include "runner/weights/quantized_linears.h"
#include "runner/weights/text.h"

namespace quire::runner::weights {
namespace {

constexpr int64_t kRowsAtOnce = 16;  // of codes that lie side by side in a file
constexpr float kScaleMax = 65504;   // of float16

// AWQ: which of the eight codes in a number an output has.
constexpr std::array<int64_t, 8> kAwqOrder = {0, 4, 1, 5, 2, 6, 3, 7};

uint32_t Word(const RawTensor& tensor, int64_t index) {
  uint32_t word = 0;
  std::memcpy(&word, tensor.data.data() + static_cast<size_t>(index) * sizeof(word), sizeof(word));
  return word;
}

constexpr float Float8(uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const float size = exponent == 0
                         ? static_cast<float>(fraction) * 0x1p-9F
                         : static_cast<float>(8 + fraction) * 0x1p-10F * static_cast<float>(1 << exponent);
  return (code & 0x80) != 0 ? -size : size;
}

constexpr auto kFloat8 = [] {
  std::array<float, 256> values{};
  for (size_t code = 0; code < values.size(); ++code) values[code] = Float8(static_cast<uint8_t>(code));
  return values;
}();

bool IsNumber(uint8_t code) { return (code & 0x7F) != 0x7F; }
bool IsTernary(uint8_t code) { return code <= 2; }

// Codes of whole blocks, in the order of TQ2_0.
void EncodeTernary(std::span<const uint8_t> from, float scale, std::byte* to) {
  constexpr size_t kHalf = BlockTQ2_0::kElements / 2, kStride = kHalf / 4;
  for (size_t begin = 0; begin < from.size(); begin += kHalf) {
    const std::span<const uint8_t> half = from.subspan(begin, kHalf);
    for (size_t i = 0; i < kStride; ++i) {
      const int byte =
          half[i] | half[kStride + i] << 2 | half[2 * kStride + i] << 4 | half[3 * kStride + i] << 6;
      *to++ = static_cast<std::byte>(byte);
    }
    if (begin % BlockTQ2_0::kElements == 0) continue;
    StoreF16(scale, to);
    to += sizeof(BlockTQ2_0::d);
  }
}

}  // namespace

float QuantizedLinear::Scale(int64_t row, int64_t group_index) const {
  const int64_t index =
      scales_by_group ? group_index * out() + row : row / rows_per_scale * groups + group_index;
  float value = 0;
  const size_t bytes = RowBytes(scales->type, 1);
  Dequantize(scales->type, scales->data.data() + static_cast<size_t>(index) * bytes, 1, &value);
  return inverse_scales ? 1 / value : value;
}

int32_t QuantizedLinear::Zero(int64_t row, int64_t group_index) const {
  if (zeros == nullptr) return zero;
  const int64_t per = 32 / bits,
                place = packing == Packing::kAwq ? kAwqOrder[static_cast<size_t>(row % 8)] : row % per;
  const int64_t index =
      packing == Packing::kRows ? row / per * groups + group_index : group_index * (out() / per) + row / per;
  const uint32_t code = Word(*zeros, index) >> (place * bits) & ((1U << bits) - 1);
  return static_cast<int32_t>(code) + zero_add;
}

int64_t QuantizedLinear::GroupOf(int64_t column) const {
  return order == nullptr ? column / group : static_cast<int64_t>(Word(*order, column));
}

api::Result<void> QuantizedLinear::Check(const std::string& file) const {
  const auto refuse = [&](std::string_view reason) {
    return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: tensor {}: {}", file, Quoted(name), reason));
  };
  for (int64_t column = 0; order != nullptr && column < in(); ++column) {
    const int64_t at = GroupOf(column);
    if (at >= groups) return refuse(fmt::format("input {} is in group {} of {}", column, at, groups));
    if (type != DataType::kF16 && at != column / group)
      return refuse("its groups are not in order, but desc_act is false");
  }
  const bool fixed = type == DataType::kQ4_0 || type == DataType::kQ8_0;
  for (int64_t row = 0; row < out(); row += rows_per_scale) {
    for (int64_t at = 0; at < groups; ++at) {
      const float scale = Scale(row, at);
      if (!std::isfinite(scale) || (type != DataType::kBF16 && std::abs(scale) > kScaleMax)) {
        return refuse(fmt::format("a scale is {}, which is no finite float16", scale));
      }
      if (zeros == nullptr) continue;
      const int32_t point = Zero(row, at);
      if (fixed && point != zero) return refuse(fmt::format("a zero point is {}, but sym is true", point));
      // Version 1 of GPTQ stores 0 and 16 alike.
      if (zero_add != 0 && point == 1 << bits) return refuse(fmt::format("a zero point is 0 or {}", point));
    }
  }
  return {};
}

// Codes without sign.
void QuantizedLinear::Unpack(int64_t first, int64_t rows, std::span<uint8_t> to) const {
  const int64_t columns = in(), per = 32 / bits;
  const uint32_t mask = (1U << bits) - 1;
  const auto at = [&](int64_t row, int64_t column) -> uint8_t& {
    return to[static_cast<size_t>((row - first) * columns + column)];
  };
  const auto code = [&](uint32_t word, int64_t place) {
    return static_cast<uint8_t>(word >> (place * bits) & mask);
  };
  if (packing == Packing::kFp8 || packing == Packing::kInt8) {
    std::memcpy(to.data(), codes->data.data() + first * columns, static_cast<size_t>(rows * columns));
    if (packing == Packing::kInt8) {
      for (uint8_t& byte : to.first(static_cast<size_t>(rows * columns))) byte ^= 0x80U;
    }
  } else if (packing == Packing::kTernary) {
    const int64_t quarter = out() / 4;
    for (int64_t row = first; row < first + rows; ++row) {
      const std::byte* const from = codes->data.data() + row % quarter * columns;
      for (int64_t c = 0; c < columns; ++c) {
        at(row, c) =
            static_cast<uint8_t>(std::to_integer<uint32_t>(from[c]) >> (row / quarter * bits) & mask);
      }
    }
  } else if (packing == Packing::kRows) {
    for (int64_t row = first; row < first + rows; ++row) {
      for (int64_t c = 0; c < columns; ++c)
        at(row, c) = code(Word(*codes, row * codes->shape[1] + c / per), c % per);
    }
  } else if (packing == Packing::kGptq) {
    for (int64_t begin = 0; begin < columns; begin += per) {
      for (int64_t row = first; row < first + rows; ++row) {
        const uint32_t word = Word(*codes, begin / per * out() + row);
        for (int64_t i = 0; i < per; ++i) at(row, begin + i) = code(word, i);
      }
    }
  } else {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t row = first; row < first + rows; ++row) {
        const uint32_t word = Word(*codes, c * (out() / per) + row / per);
        at(row, c) = code(word, kAwqOrder[static_cast<size_t>(row % per)]);
      }
    }
  }
}

void QuantizedLinear::EncodeRow(int64_t row, std::span<const uint8_t> from, std::byte* to) const {
  std::vector<float> scale(static_cast<size_t>(groups));
  std::vector<int32_t> point(scale.size());
  for (size_t g = 0; g < scale.size(); ++g) {
    scale[g] = Scale(row, static_cast<int64_t>(g));
    point[g] = packing == Packing::kFp8 ? 0 : Zero(row, static_cast<int64_t>(g));
  }
  if (BlockElements(type) == 1) {
    for (size_t c = 0; c < from.size(); ++c) {
      const auto g = static_cast<size_t>(GroupOf(static_cast<int64_t>(c)));
      const float code = packing == Packing::kFp8 ? kFloat8[from[c]] : static_cast<float>(from[c] - point[g]);
      const uint16_t bits16 =
          type == DataType::kF16 ? Float32ToF16(code * scale[g]) : Float32ToBF16(code * scale[g]);
      std::memcpy(to + c * sizeof(bits16), &bits16, sizeof(bits16));
    }
    return;
  }
  if (type == DataType::kTQ2_0) return EncodeTernary(from, scale[0], to);
  for (size_t begin = 0; begin < from.size(); begin += BlockQ4_0::kElements) {
    const std::span<const uint8_t> block = from.subspan(begin, BlockQ4_0::kElements);
    const auto g = static_cast<size_t>(static_cast<int64_t>(begin) / group);
    StoreF16(scale[g], to);
    to += sizeof(BlockQ4_0::d);
    if (type == DataType::kQ4_1) {
      StoreF16(-static_cast<float>(point[g]) * F16ToFloat32(Float32ToF16(scale[g])), to);
      to += sizeof(BlockQ4_1::m);
    }
    if (type == DataType::kQ8_0) {
      for (const uint8_t code : block) *to++ = std::byte{code} ^ std::byte{0x80};
    } else {
      for (size_t i = 0; i < 16; ++i) *to++ = std::byte{block[i]} | std::byte{block[i + 16]} << 4;
    }
  }
}

bool QuantizedLinear::CopyRows(int64_t first, int64_t rows, std::byte* to) const {
  const auto columns = static_cast<size_t>(in());
  std::vector<uint8_t> unpacked(static_cast<size_t>(std::min(rows, kRowsAtOnce)) * columns);
  const size_t row_bytes = RowBytes(type, in());
  for (int64_t at = first; at < first + rows; at += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, first + rows - at);
    Unpack(at, count, unpacked);
    const auto all = std::span<const uint8_t>(unpacked).first(static_cast<size_t>(count) * columns);
    if (packing == Packing::kFp8 && !std::ranges::all_of(all, IsNumber)) return false;
    if (packing == Packing::kTernary && !std::ranges::all_of(all, IsTernary)) return false;
    for (int64_t i = 0; i < count; ++i, to += row_bytes) {
      EncodeRow(at + i, all.subspan(static_cast<size_t>(i) * columns, columns), to);
    }
  }
  return true;
}

}  // namespace quire::runner::weights
