// Types whose four-bit quants are indices into a codebook of uneven steps.
#include <array>
#include <bit>

#include "runner/weights/block_formats.h"
#include "runner/weights/float_bits.h"
#include "runner/weights/scale_bits.h"

namespace quire::runner::weights {
namespace {

constexpr std::array<float, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};
// Twice the values of the E2M1 floating-point format, so that they are whole.
constexpr std::array<float, 16> kMxfp4Values = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

unsigned Byte(std::byte byte) { return std::to_integer<unsigned>(byte); }

// The 32 elements of 16 bytes: low nibbles first.
void LookUp(const std::byte* qs, float scale, const std::array<float, 16>& codebook, float* to) {
  for (size_t j = 0; j < 16; ++j) {
    to[j] = scale * codebook[Byte(qs[j]) & 15U];
    to[j + 16] = scale * codebook[Byte(qs[j]) >> 4];
  }
}

// 2^(e - 128), half of what the exponent byte says: the codebook is doubled. Subnormal below e = 2.
float HalfPowerOfTwo(unsigned e) {
  return std::bit_cast<float>(e < 2 ? uint32_t{0x00200000} << e : uint32_t{e - 1} << 23);
}

}  // namespace

// d, qs[16].
void DequantizeIQ4_NL(const std::byte* from, size_t blocks, float* to) {
  for (; blocks != 0; --blocks, from += 18, to += 32) LookUp(from + 2, LoadF16(from), kIq4Values, to);
}

// d, high scale bits (u16: two for each group of 32), scales_l[4] (a nibble for each), qs[128].
void DequantizeIQ4_XS(const std::byte* from, size_t blocks, float* to) {
  for (; blocks != 0; --blocks, from += 136, to += 256) {
    const float d = LoadF16(from);
    for (size_t group = 0; group < 8; ++group) {
      const float scale = d * static_cast<float>(Iq4Scale(from, group));
      LookUp(from + 8 + group * 16, scale, kIq4Values, to + group * 32);
    }
  }
}

// e, qs[16].
void DequantizeMXFP4(const std::byte* from, size_t blocks, float* to) {
  for (; blocks != 0; --blocks, from += 17, to += 32) {
    LookUp(from + 1, HalfPowerOfTwo(Byte(from[0])), kMxfp4Values, to);
  }
}

}  // namespace quire::runner::weights
