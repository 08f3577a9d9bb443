// The floating-point types, and blocks of 32 with one scale: nibble j of the 16 bytes `qs` is element j (low)
// or 16 + j (high); bit e of the word `qh` is the fifth bit of element e.
#include <cstring>

#include "runner/weights/block_formats.h"
#include "runner/weights/float_bits.h"

namespace quire::runner::weights {
namespace {

constexpr size_t kElements = 32;

unsigned Byte(std::byte byte) { return std::to_integer<unsigned>(byte); }

int LowNibble(std::byte byte) { return static_cast<int>(Byte(byte) & 15U); }
int HighNibble(std::byte byte) { return static_cast<int>(Byte(byte) >> 4); }

uint16_t Word(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return bits;
}

// value(element, quant) for the 32 elements of 16 bytes.
template <class Value>
void FourBits(const std::byte* qs, float* to, Value value) {
  for (size_t j = 0; j < 16; ++j) {
    to[j] = value(LowNibble(qs[j]));
    to[j + 16] = value(HighNibble(qs[j]));
  }
}

template <class Value>
void FiveBits(const std::byte* qh, const std::byte* qs, float* to, Value value) {
  uint32_t high;
  std::memcpy(&high, qh, sizeof(high));
  for (uint32_t j = 0; j < 16; ++j) {
    to[j] = value(LowNibble(qs[j]) | static_cast<int>((high >> j & 1U) << 4));
    to[j + 16] = value(HighNibble(qs[j]) | static_cast<int>((high >> (j + 16) & 1U) << 4));
  }
}

}  // namespace

void DequantizeF32(const std::byte* from, size_t blocks, float* to) {
  if (blocks != 0) std::memcpy(to, from, blocks * sizeof(float));  // a pointer to nothing may be null
}

void DequantizeF16(const std::byte* from, size_t blocks, float* to) {
  for (size_t i = 0; i < blocks; ++i) to[i] = F16ToFloat32(Word(from + 2 * i));
}

void DequantizeBF16(const std::byte* from, size_t blocks, float* to) {
  for (size_t i = 0; i < blocks; ++i) to[i] = BF16ToFloat32(Word(from + 2 * i));
}

// d, qs[16].
void DequantizeQ4_0(const std::byte* from, size_t blocks, float* to) {
  for (; blocks != 0; --blocks, from += 18, to += kElements) {
    const float d = LoadF16(from);
    FourBits(from + 2, to, [d](int q) { return d * static_cast<float>(q - 8); });
  }
}

// d, m, qs[16].
void DequantizeQ4_1(const std::byte* from, size_t blocks, float* to) {
  for (; blocks != 0; --blocks, from += 20, to += kElements) {
    const float d = LoadF16(from), m = LoadF16(from + 2);
    FourBits(from + 4, to, [d, m](int q) { return d * static_cast<float>(q) + m; });
  }
}

// d, qh, qs[16].
void DequantizeQ5_0(const std::byte* from, size_t blocks, float* to) {
  for (; blocks != 0; --blocks, from += 22, to += kElements) {
    const float d = LoadF16(from);
    FiveBits(from + 2, from + 6, to, [d](int q) { return d * static_cast<float>(q - 16); });
  }
}

// d, m, qh, qs[16].
void DequantizeQ5_1(const std::byte* from, size_t blocks, float* to) {
  for (; blocks != 0; --blocks, from += 24, to += kElements) {
    const float d = LoadF16(from), m = LoadF16(from + 2);
    FiveBits(from + 4, from + 8, to, [d, m](int q) { return d * static_cast<float>(q) + m; });
  }
}

// d, 32 signed bytes.
void DequantizeQ8_0(const std::byte* from, size_t blocks, float* to) {
  for (; blocks != 0; --blocks, from += 34, to += kElements) {
    const float d = LoadF16(from);
    for (size_t j = 0; j < kElements; ++j) to[j] = d * static_cast<float>(static_cast<int8_t>(from[2 + j]));
  }
}

}  // namespace quire::runner::weights
