#include "cache/stored_state.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cache/check.h"

namespace quire::cache {
namespace {

constexpr size_t kScaleBlock = 32;  // numbers with one scale
constexpr float kCodeMax = 127;
constexpr float kHalfMax = 65504;
constexpr float kHalfNormalMin = 0x1p-14F;
constexpr float kHalfStep = 0x1p-24F;            // of numbers below
constexpr uint32_t kExponentShift = 112U << 10;  // between the exponents of float32 and float16
constexpr uint16_t kHalfNan = 0x7e00;

struct CodedBlock {
  uint16_t scale;
  int8_t codes[kScaleBlock];
};
static_assert(sizeof(CodedBlock) == 34);

uint16_t RoundToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

// The smallest float16 >= value, at most the largest finite one. REQUIRES: value >= 0.
uint16_t HalfAtLeast(float value) {
  if (value >= kHalfMax) return 0x7bff;
  if (value < kHalfNormalMin) return static_cast<uint16_t>(std::ceil(value / kHalfStep));
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t half = (bits >> 13) - kExponentShift;
  return static_cast<uint16_t>(half + ((bits & 0x1fffU) != 0 ? 1U : 0U));
}

// REQUIRES: what HalfAtLeast() gives, or kHalfNan.
float HalfToFloat(uint16_t half) {
  if (half == kHalfNan) return std::nanf("");
  if (half < 0x400) return static_cast<float>(half) * kHalfStep;
  return std::bit_cast<float>((half + kExponentShift) << 13);
}

CodedBlock Encode(const float* numbers) {
  CodedBlock block{};
  float largest = 0;
  bool finite = true;
  for (size_t i = 0; i < kScaleBlock; ++i) {
    finite = finite && std::isfinite(numbers[i]);
    largest = std::max(largest, std::abs(numbers[i]));
  }
  if (!finite) {
    block.scale = kHalfNan;
    return block;
  }
  block.scale = HalfAtLeast(largest / kCodeMax);
  const float scale = HalfToFloat(block.scale);
  if (scale == 0) return block;
  for (size_t i = 0; i < kScaleBlock; ++i) {
    const float code = std::nearbyint(numbers[i] / scale);
    block.codes[i] = static_cast<int8_t>(std::clamp(code, -kCodeMax, kCodeMax));
  }
  return block;
}

void StoreNumbers(ElementType type, const std::byte* from, size_t count, std::byte* to) {
  float numbers[kScaleBlock];
  for (size_t at = 0; at < count; at += kScaleBlock) {
    const size_t some = std::min(kScaleBlock, count - at);
    std::memcpy(numbers, from + at * sizeof(float), some * sizeof(float));
    if (type == ElementType::kQ8_0) {
      const CodedBlock block = Encode(numbers);
      std::memcpy(to + at / kScaleBlock * sizeof block, &block, sizeof block);
      continue;
    }
    uint16_t rounded[kScaleBlock];
    for (size_t i = 0; i < some; ++i) rounded[i] = RoundToBf16(numbers[i]);
    std::memcpy(to + at * sizeof(uint16_t), rounded, some * sizeof(uint16_t));
  }
}

void LoadNumbers(ElementType type, const std::byte* from, size_t count, std::byte* to) {
  float numbers[kScaleBlock];
  for (size_t at = 0; at < count; at += kScaleBlock) {
    const size_t some = std::min(kScaleBlock, count - at);
    if (type == ElementType::kQ8_0) {
      CodedBlock block;
      std::memcpy(&block, from + at / kScaleBlock * sizeof block, sizeof block);
      const float scale = HalfToFloat(block.scale);
      for (size_t i = 0; i < kScaleBlock; ++i) numbers[i] = scale * static_cast<float>(block.codes[i]);
    } else {
      uint16_t rounded[kScaleBlock];
      std::memcpy(rounded, from + at * sizeof(uint16_t), some * sizeof(uint16_t));
      for (size_t i = 0; i < some; ++i) numbers[i] = std::bit_cast<float>(uint32_t{rounded[i]} << 16);
    }
    std::memcpy(to + at * sizeof(float), numbers, some * sizeof(float));
  }
}

// Visits each layer: visit(bytes of its convolution tail, its offset in a slot, its offset in a stored slot,
// numbers of its delta state). The delta state follows the tail in both.
template <class Visit>
void ForEachLayer(const Layout& layout, const Visit& visit) {
  QUIRE_CACHE_CHECK(layout.stored_state == ElementType::kBF16 || layout.stored_state == ElementType::kQ8_0);
  size_t stored = 0;
  for (size_t i = 0; i < layout.recurrent.size(); ++i) {
    const RecurrentLayer& layer = layout.recurrent[i];
    const size_t tail = DeltaOffset(layout, i) - ConvOffset(layout, i);
    const auto numbers =
        static_cast<size_t>(int64_t{layer.delta_heads} * layer.delta_value_dim * layer.delta_key_dim);
    visit(tail, ConvOffset(layout, i), stored, numbers);
    stored += tail + StoredDeltaBytes(layout, i);
  }
}

}  // namespace

void StoreState(const Layout& layout, const std::byte* slot, std::byte* stored) {
  ForEachLayer(layout, [&](size_t tail, size_t in_slot, size_t in_stored, size_t numbers) {
    std::memcpy(stored + in_stored, slot + in_slot, tail);
    StoreNumbers(layout.stored_state, slot + in_slot + tail, numbers, stored + in_stored + tail);
  });
}

void LoadState(const Layout& layout, const std::byte* stored, std::byte* slot) {
  ForEachLayer(layout, [&](size_t tail, size_t in_slot, size_t in_stored, size_t numbers) {
    std::memcpy(slot + in_slot, stored + in_stored, tail);
    LoadNumbers(layout.stored_state, stored + in_stored + tail, numbers, slot + in_slot + tail);
  });
}

}  // namespace quire::cache
