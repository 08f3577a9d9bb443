#include "runner/weights/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "runner/weights/block_formats.h"
#include "runner/weights/float_bits.h"
#include "runner/weights/scale_bits.h"

namespace quire::runner::weights {
namespace {

constexpr float kF16Max = 65504;

// To nearest, ties to even. REQUIRES: |low|, |high| < 2^22. Adding 1.5 * 2^23 leaves the integer in the low
// bits, which a compiler can do for many values at once.
int Nearest(float value, int low, int high) {
  const float limited = std::clamp(value, static_cast<float>(low), static_cast<float>(high));
  return static_cast<int>(std::bit_cast<uint32_t>(limited + 0x1.8p23F) - 0x4b400000U);
}

float RoundedToF16(float value) { return F16ToFloat32(Float32ToF16(std::clamp(value, -kF16Max, kF16Max))); }

// The element of largest size, with its sign.
float Extreme(std::span<const float> x) {
  float extreme = 0;
  for (const float value : x) {
    if (std::abs(value) > std::abs(extreme)) extreme = value;
  }
  return extreme;
}

// The squared error of x when stored as scale * q, q in [low, high].
float SymmetricError(std::span<const float> x, float scale, int low, int high) {
  const float inverse = scale == 0 ? 0 : 1 / scale;
  float error = 0;
  for (const float value : x) {
    const float difference = value - scale * static_cast<float>(Nearest(value * inverse, low, high));
    error += difference * difference;
  }
  return error;
}

// The scale for which q in [low, high] times scale comes nearest to x: from quants around those that put the
// largest element at the end of the range, the scale that least squares gives for each.
template <class Round>
float BestSymmetricScale(std::span<const float> x, int low, int high, Round round) {
  const float extreme = Extreme(x);
  if (extreme == 0) return 0;
  float best = round(extreme / static_cast<float>(low));
  float best_error = SymmetricError(x, best, low, high);
  for (int step = -9; step <= 9; ++step) {
    for (const int end : {low, high}) {
      const float inverse = (static_cast<float>(end) + 0.1F * static_cast<float>(step)) / extreme;
      float product = 0, square = 0;
      for (const float value : x) {
        const auto q = static_cast<float>(Nearest(value * inverse, low, high));
        product += value * q;
        square += q * q;
      }
      if (square == 0) continue;
      const float scale = round(product / square);
      const float error = SymmetricError(x, scale, low, high);
      if (error < best_error) best = scale, best_error = error;
    }
  }
  return best;
}

void QuantizeBlock(const float* x, BlockF32* to) { std::memcpy(to->value, x, sizeof(float)); }
void QuantizeBlock(const float* x, BlockF16* to) { StoreF16(*x, to->value); }
void QuantizeBlock(const float* x, BlockBF16* to) {
  const uint16_t bits = Float32ToBF16(*x);
  std::memcpy(to->value, &bits, sizeof(bits));
}

void QuantizeBlock(const float* x, BlockQ8_0* to) {
  const float d = RoundedToF16(std::abs(Extreme({x, 32})) / 127);
  const float inverse = d == 0 ? 0 : 1 / d;
  StoreF16(d, to->d);
  for (size_t i = 0; i < 32; ++i) {
    to->qs[i] = static_cast<std::byte>(static_cast<int8_t>(Nearest(x[i] * inverse, -127, 127)));
  }
}

void QuantizeBlock(const float* x, BlockQ4_0* to) {
  const float d = BestSymmetricScale({x, 32}, -8, 7, RoundedToF16);
  const float inverse = d == 0 ? 0 : 1 / d;
  const auto quant = [&](size_t i) { return static_cast<unsigned>(Nearest(x[i] * inverse, -8, 7) + 8); };
  StoreF16(d, to->d);
  for (size_t i = 0; i < 16; ++i) to->qs[i] = static_cast<std::byte>(quant(i) | quant(i + 16) << 4);
}

// ---- Q6_K: 16 groups of 16, x = d * scale * (q - 32) ----

void QuantizeBlock(const float* x, BlockQ6_K* to) {
  std::array<float, 16> wanted;
  for (size_t group = 0; group < 16; ++group) {
    wanted[group] = BestSymmetricScale({x + group * 16, 16}, -32, 31, [](float scale) { return scale; });
  }
  const float d = RoundedToF16(Extreme(wanted) / -128);
  *to = {};
  StoreF16(d, to->d);
  for (size_t group = 0; group < 16; ++group) {
    const std::span<const float> values(x + group * 16, 16);
    const int middle = d == 0 ? 0 : Nearest(wanted[group] / d, -128, 127);
    int scale = middle;
    float best_error = std::numeric_limits<float>::infinity();
    for (int candidate = std::max(-128, middle - 2); candidate <= std::min(127, middle + 2); ++candidate) {
      const float error = SymmetricError(values, d * static_cast<float>(candidate), -32, 31);
      if (error < best_error) scale = candidate, best_error = error;
    }
    to->scales[group] = static_cast<std::byte>(static_cast<int8_t>(scale));
    const float step = d * static_cast<float>(scale), inverse = step == 0 ? 0 : 1 / step;
    const size_t half = group / 8, g = group % 8 / 2, e0 = group % 2 * 16;
    for (size_t e = 0; e < 16; ++e) {
      const auto q = static_cast<unsigned>(Nearest(values[e] * inverse, -32, 31) + 32);
      to->ql[half * 64 + g % 2 * 32 + e0 + e] |= static_cast<std::byte>((q & 15U) << (g / 2 * 4));
      to->qh[half * 32 + e0 + e] |= static_cast<std::byte>(q >> 4 << (2 * g));
    }
  }
}

// ---- Q4_K: 8 groups of 32, x = d * scale * q - dmin * minimum ----

// A group's step and offset: x is about step * q - offset, offset >= 0.
struct Affine {
  float step = 0;
  float offset = 0;
};

float AffineError(std::span<const float> x, Affine by) {
  const float inverse = by.step == 0 ? 0 : 1 / by.step;
  float error = 0;
  for (const float value : x) {
    const int q = Nearest((value + by.offset) * inverse, 0, 15);
    const float difference = value - (by.step * static_cast<float>(q) - by.offset);
    error += difference * difference;
  }
  return error;
}

// Least squares for the quants that `inverse` and `offset` give.
Affine FitAffine(std::span<const float> x, float inverse, float offset) {
  double count = 0, sum_q = 0, sum_qq = 0, sum_x = 0, sum_qx = 0;
  for (const float value : x) {
    const double q = Nearest((value + offset) * inverse, 0, 15);
    count += 1;
    sum_q += q;
    sum_qq += q * q;
    sum_x += value;
    sum_qx += q * value;
  }
  const double determinant = count * sum_qq - sum_q * sum_q;
  if (determinant <= 0) return {};
  const double step = (count * sum_qx - sum_x * sum_q) / determinant;
  const double fitted = (step * sum_q - sum_x) / count;
  if (fitted >= 0) return {static_cast<float>(step), static_cast<float>(fitted)};
  return {static_cast<float>(sum_qq > 0 ? sum_qx / sum_qq : 0), 0};
}

Affine BestAffine(std::span<const float> x) {
  const auto [smallest, largest] = std::ranges::minmax(x);
  const float offset = std::max(0.0F, -smallest), range = largest + offset;
  if (range <= 0) return {0, offset};
  Affine best = {range / 15, offset};
  float best_error = AffineError(x, best);
  for (int step = -10; step <= 10; ++step) {
    const Affine fitted = FitAffine(x, (15 + 0.1F * static_cast<float>(step)) / range, offset);
    if (fitted.step <= 0) continue;
    const float error = AffineError(x, fitted);
    if (error < best_error) best = fitted, best_error = error;
  }
  return best;
}

void QuantizeBlock(const float* x, BlockQ4_K* to) {
  std::array<Affine, 8> wanted;
  float step_max = 0, offset_max = 0;
  for (size_t group = 0; group < 8; ++group) {
    wanted[group] = BestAffine({x + group * 32, 32});
    step_max = std::max(step_max, wanted[group].step);
    offset_max = std::max(offset_max, wanted[group].offset);
  }
  const float d = RoundedToF16(step_max / 63), dmin = RoundedToF16(offset_max / 63);
  GroupScales scales{};
  *to = {};
  for (size_t group = 0; group < 8; ++group) {
    const std::span<const float> values(x + group * 32, 32);
    const int scale_middle = d == 0 ? 0 : Nearest(wanted[group].step / d, 0, 63);
    const int min_offset_center = dmin == 0 ? 0 : Nearest(wanted[group].offset / dmin, 0, 63);
    Affine best;
    float best_error = std::numeric_limits<float>::infinity();
    for (int scale = std::max(0, scale_middle - 2); scale <= std::min(63, scale_middle + 2); ++scale) {
      for (int min_offset = std::max(0, min_offset_center - 2);
           min_offset <= std::min(63, min_offset_center + 2); ++min_offset) {
        const Affine by = {d * static_cast<float>(scale), dmin * static_cast<float>(min_offset)};
        const float error = AffineError(values, by);
        if (error >= best_error) continue;
        best = by, best_error = error;
        scales.scale[group] = static_cast<uint8_t>(scale);
        scales.min_offset[group] = static_cast<uint8_t>(min_offset);
      }
    }
    const float inverse = best.step == 0 ? 0 : 1 / best.step;
    for (size_t e = 0; e < 32; ++e) {
      const auto q = static_cast<unsigned>(Nearest((values[e] + best.offset) * inverse, 0, 15));
      to->qs[group / 2 * 32 + e] |= static_cast<std::byte>(q << (group % 2 * 4));
    }
  }
  StoreF16(d, to->d);
  StoreF16(dmin, to->dmin);
  PackGroupScales(scales, to->scales);
}

using BlockQuantizer = void (*)(const float* x, std::byte* to);

// Null for a type that nothing is quantized to.
template <class Block>
constexpr BlockQuantizer QuantizerOfBlock() {
  if constexpr (requires(const float* x, Block* to) { QuantizeBlock(x, to); }) {
    return [](const float* x, std::byte* to) { QuantizeBlock(x, reinterpret_cast<Block*>(to)); };
  } else {
    return nullptr;
  }
}

BlockQuantizer QuantizerOf(DataType type) {
#define QUIRE_QUANTIZER(name, ...) QuantizerOfBlock<Block##name>(),
  static constexpr BlockQuantizer kQuantizers[] = {QUIRE_DATA_TYPES(QUIRE_QUANTIZER)};
#undef QUIRE_QUANTIZER
  return kQuantizers[static_cast<size_t>(type)];
}

}  // namespace

bool CanQuantizeTo(DataType type) { return QuantizerOf(type) != nullptr; }

void Quantize(DataType type, std::span<const float> values, std::byte* to) {
  const BlockQuantizer quantize = QuantizerOf(type);
  const BlockFormat& format = FormatOf(type);
  const auto elements = static_cast<size_t>(format.elements);
  std::array<float, 256> block;
  for (size_t at = 0; at < values.size(); at += elements, to += format.bytes) {
    if (elements == 1) {
      quantize(&values[at], to);
      continue;
    }
    for (size_t i = 0; i < elements; ++i) {
      const float value = values[at + i];
      block[i] = std::isnan(value) ? 0 : std::clamp(value, -kF16Max, kF16Max);
    }
    quantize(block.data(), to);
  }
}

void ConvertRows(const Tensor& tensor, DataType to, int64_t first, int64_t rows, int threads,
                 std::span<std::byte> out) {
  const int64_t columns = tensor.columns();
  const size_t from_bytes = RowBytes(tensor.type, columns), to_bytes = RowBytes(to, columns);
  const auto convert = [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t i = begin; i < end; ++i) {
      Dequantize(tensor.type, tensor.data.data() + static_cast<size_t>(first + i) * from_bytes, columns,
                 row.data());
      Quantize(to, row, out.data() + static_cast<size_t>(i) * to_bytes);
    }
  };
  std::vector<std::jthread> others;
  const int64_t share = (rows + threads - 1) / threads;
  for (int64_t begin = share; begin < rows; begin += share) {
    others.emplace_back(convert, begin, std::min(rows, begin + share));
  }
  convert(0, std::min(rows, share));
}

bool IsOfVisionTower(std::string_view name) {
  constexpr std::string_view kParts[] = {"visual.",      "vision_tower.", "vision_model.",
                                         "embed_vision", "connector.",    "multi_modal_projector."};
  return name.starts_with("v.") || name.starts_with("mm.") ||
         std::ranges::any_of(kParts, [&](std::string_view part) { return name.find(part) != name.npos; });
}

}  // namespace quire::runner::weights
