#include "runner/weights/unpack_grids.h"

#include <array>
#include <bit>
#include <cstring>

#include "runner/weights/block_formats.h"
#include "runner/weights/grids.h"

namespace quire::runner::weights {
namespace {

constexpr size_t kGroups = 8;  // of 32 elements in a block of 256

unsigned At(const std::byte* bytes, size_t i) { return std::to_integer<unsigned>(bytes[i]); }

unsigned Word16(const std::byte* bytes, size_t i) {
  uint16_t word;
  std::memcpy(&word, bytes + 2 * i, sizeof(word));
  return word;
}

uint32_t Word32(const std::byte* bytes, size_t i) {
  uint32_t word;
  std::memcpy(&word, bytes + 4 * i, sizeof(word));
  return word;
}

// Nibble i of bytes, the low one of each first.
unsigned Nibble(const std::byte* bytes, size_t i) { return At(bytes, i / 2) >> (i % 2 * 4) & 15U; }

// Three bits or a nibble as an odd number.
int8_t OddScale(unsigned bits) { return static_cast<int8_t>(2 * bits + 1); }

// Seven signs; the eighth makes their number even.
unsigned EightSigns(unsigned seven) { return seven | static_cast<unsigned>(std::popcount(seven) & 1) << 7; }

// 8 elements of an entry of 2 bits each; the third bit of each is that of `high`.
void PutEight(unsigned entry, unsigned high, uint8_t* to) {
  for (size_t j = 0; j < 8; ++j)
    to[j] = static_cast<uint8_t>((entry >> (2 * j) & 3U) | (high >> j & 1U) << 2);
}

// 4 elements of an entry of 3 bits each, and their signs.
void PutFour(unsigned entry, unsigned signs, uint8_t* to) {
  for (size_t j = 0; j < 4; ++j)
    to[j] = static_cast<uint8_t>((entry >> (3 * j) & 7U) | (signs >> j & 1U) << 3);
}

// The digit of three that is left on top of a byte multiplied with 3 that often.
uint8_t Digit(unsigned byte, unsigned power) { return static_cast<uint8_t>((byte * power & 255U) * 3 >> 8); }

}  // namespace

void UnpackBlock(const BlockIQ2_XXS& block, BlockQuants* to) {
  std::memcpy(&to->scale, block.d, sizeof(to->scale));
  for (size_t group = 0; group < kGroups; ++group) {
    const uint32_t signs = Word32(block.qs, 2 * group + 1);
    to->group_scale[group] = OddScale(signs >> 28);
    for (size_t l = 0; l < 4; ++l) {
      PutEight(kGridIq2Xxs[At(block.qs, 8 * group + l)], EightSigns(signs >> (7 * l) & 127U),
               to->quant.data() + group * 32 + l * 8);
    }
  }
}

void UnpackBlock(const BlockIQ2_XS& block, BlockQuants* to) {
  std::memcpy(&to->scale, block.d, sizeof(to->scale));
  for (size_t i = 0; i < 32; ++i) {
    const unsigned word = Word16(block.qs, i);
    to->group_scale[i / 2] = OddScale(Nibble(block.scales, i / 2));
    PutEight(kGridIq2Xs[word & 511U], EightSigns(word >> 9), to->quant.data() + i * 8);
  }
}

void UnpackBlock(const BlockIQ2_S& block, BlockQuants* to) {
  std::memcpy(&to->scale, block.d, sizeof(to->scale));
  for (size_t i = 0; i < 32; ++i) {
    const unsigned high = At(block.qh, i / 4) >> (i % 4 * 2) & 3U;
    to->group_scale[i / 2] = OddScale(Nibble(block.scales, i / 2));
    PutEight(kGridIq2S[At(block.qs, i) | high << 8], At(block.signs, i), to->quant.data() + i * 8);
  }
}

void UnpackBlock(const BlockIQ3_XXS& block, BlockQuants* to) {
  std::memcpy(&to->scale, block.d, sizeof(to->scale));
  for (size_t group = 0; group < kGroups; ++group) {
    const uint32_t word = Word32(block.scales_and_signs, group);
    to->group_scale[group] = OddScale(word >> 28);
    for (size_t l = 0; l < 8; ++l) {
      const unsigned signs = EightSigns(word >> (l / 2 * 7) & 127U) >> (l % 2 * 4);
      PutFour(kGridIq3Xxs[At(block.qs, group * 8 + l)], signs, to->quant.data() + group * 32 + l * 4);
    }
  }
}

void UnpackBlock(const BlockIQ3_S& block, BlockQuants* to) {
  std::memcpy(&to->scale, block.d, sizeof(to->scale));
  for (size_t group = 0; group < kGroups; ++group) {
    to->group_scale[group] = OddScale(Nibble(block.scales, group));
    for (size_t l = 0; l < 8; ++l) {
      const unsigned entry = At(block.qs, group * 8 + l) | (At(block.qh, group) >> l & 1U) << 8;
      const unsigned signs = At(block.signs, group * 4 + l / 2) >> (l % 2 * 4);
      PutFour(kGridIq3S[entry], signs, to->quant.data() + group * 32 + l * 4);
    }
  }
}

// -1, 0 or 1 plus or minus an eighth: all of a group have the same sign there, so that it is a min offset.
void UnpackBlock(const BlockIQ1_S& block, BlockQuants* to) {
  std::memcpy(&to->scale, block.d, sizeof(to->scale));
  to->min_offset = to->scale;
  for (size_t group = 0; group < kGroups; ++group) {
    const unsigned high = Word16(block.qh, group);
    const auto scale = static_cast<int>(2 * (high >> 12 & 7U) + 1);
    to->group_scale[group] = static_cast<int8_t>(8 * scale);
    to->group_min_offset[group] = static_cast<uint8_t>((high & 0x8000U) != 0 ? scale : -scale);
    for (size_t l = 0; l < 4; ++l) {
      const unsigned entry = At(block.qs, group * 4 + l) | (high >> (3 * l) & 7U) << 8;
      PutEight(kGridIq1[entry], 0, to->quant.data() + group * 32 + l * 8);
    }
  }
}

// As IQ1_S, but the sign of the eighth is that of 8 elements.
void UnpackBlock(const BlockIQ1_M& block, BlockQuants* to) {
  unsigned bits = 0;  // float16, a nibble on top of each word of scales
  for (size_t word = 0; word < 4; ++word) bits |= Word16(block.scales, word) >> 12 << (4 * word);
  to->scale = static_cast<uint16_t>(bits);
  for (size_t i = 0; i < 32; ++i) {
    to->group_scale[i / 2] = OddScale(Word16(block.scales, i / 8) >> (i / 2 % 4 * 3) & 7U);
    const unsigned nibble = Nibble(block.qh, i);
    PutEight(kGridIq1[At(block.qs, i) | (nibble & 7U) << 8], (nibble & 8U) != 0 ? 255 : 0,
             to->quant.data() + i * 8);
  }
}

void UnpackBlock(const BlockTQ1_0& block, BlockQuants* to) {
  std::memcpy(&to->scale, block.d, sizeof(to->scale));
  constexpr std::array<unsigned, 5> kPowers = {1, 3, 9, 27, 81};
  uint8_t* next = to->quant.data();
  const auto put = [&](const std::byte* bytes, size_t count, size_t powers) {
    for (size_t p = 0; p < powers; ++p) {
      for (size_t i = 0; i < count; ++i) *next++ = Digit(At(bytes, i), kPowers[p]);
    }
  };
  put(block.qs, 32, 5);
  put(block.qs + 32, 16, 5);
  put(block.qh, 4, 4);
}

void UnpackBlock(const BlockTQ2_0& block, BlockQuants* to) {
  std::memcpy(&to->scale, block.d, sizeof(to->scale));
  for (size_t e = 0; e < 256; ++e) {
    to->quant[e] = static_cast<uint8_t>(At(block.qs, e / 128 * 32 + e % 32) >> (e % 128 / 32 * 2) & 3U);
  }
}

}  // namespace quire::runner::weights
