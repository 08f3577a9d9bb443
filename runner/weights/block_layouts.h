// The bytes of a block of each DataType, as ggml lays them out. Fields are bytes, so a block may lie at any
// address. `d`, `m` and `dmin` are float16.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::runner::weights {

template <int32_t kCount>
struct BlockOf {
  static constexpr int32_t kElements = kCount;
};

struct BlockF32 : BlockOf<1> {
  std::byte value[4];
};

struct BlockF16 : BlockOf<1> {
  std::byte value[2];
};

struct BlockBF16 : BlockOf<1> {
  std::byte value[2];
};

// In blocks of 32, nibble j of `qs` is element j (low) or 16 + j (high); bit e of `qh` is the fifth bit of
// element e.
struct BlockQ4_0 : BlockOf<32> {
  std::byte d[2], qs[16];
};

struct BlockQ4_1 : BlockOf<32> {
  std::byte d[2], m[2], qs[16];
};

struct BlockQ5_0 : BlockOf<32> {
  std::byte d[2], qh[4], qs[16];
};

struct BlockQ5_1 : BlockOf<32> {
  std::byte d[2], m[2], qh[4], qs[16];
};

struct BlockQ8_0 : BlockOf<32> {
  std::byte d[2], qs[32];  // signed
};

// K-quants: blocks of 256 in groups of 16 or 32, whose small integer scales share the block's float16 ones.

// `scales`: low nibble: scale, high: min offset. Element e of a half of 128 is bits 2 * (e / 32) and up of
// byte e % 32 of the half's 32.
struct BlockQ2_K : BlockOf<256> {
  std::byte scales[16], qs[64], d[2], dmin[2];
};

// Two low bits as in Q2_K; the third is bit (element / 32) of hmask[element % 32].
struct BlockQ3_K : BlockOf<256> {
  std::byte hmask[32], qs[64], scales[12], d[2];
};

// For every 64 elements, 32 bytes hold the first half low and the second half high.
struct BlockQ4_K : BlockOf<256> {
  std::byte d[2], dmin[2], scales[12], qs[128];
};

// As Q4_K, with a fifth bit: bit `group` of qh[e].
struct BlockQ5_K : BlockOf<256> {
  std::byte d[2], dmin[2], scales[12], qh[32], qs[128];
};

// In each half of 128 elements, group g of 32 has its low nibbles in bytes (g % 2) * 32 and up of the half's
// 64 (low nibble for g < 2) and two more bits at 2 * g of the half's 32. `scales` are signed.
struct BlockQ6_K : BlockOf<256> {
  std::byte ql[128], qh[64], scales[16], d[2];
};

// Four-bit quants that are indices into a codebook of uneven steps.
struct BlockIQ4_NL : BlockOf<32> {
  std::byte d[2], qs[16];
};

// For each group of 32, two bits of `scales_h` and a nibble of `scales_l`.
struct BlockIQ4_XS : BlockOf<256> {
  std::byte d[2], scales_h[2], scales_l[4], qs[128];
};

struct BlockMXFP4 : BlockOf<32> {
  std::byte e, qs[16];
};

// Four parts of 16 elements, each with an E4M3 scale; of the 8 bytes of a part the low nibbles come first.
struct BlockNVFP4 : BlockOf<64> {
  std::byte scales[4], qs[32];
};

// Entries of codebooks of 8 elements (IQ1, IQ2) or 4 (IQ3), see grids.h, with signs and small scales.

// For each group of 32, four indices in bytes, then a word of four times 7 signs and 4 bits of scale.
struct BlockIQ2_XXS : BlockOf<256> {
  std::byte d[2], qs[64];
};

// Words of 9 bits of index and 7 signs; a nibble of scale for 16 elements.
struct BlockIQ2_XS : BlockOf<256> {
  std::byte d[2], qs[64], scales[8];
};

// Indices with two more bits in `qh`, 8 signs each; a nibble of scale for 16 elements.
struct BlockIQ2_S : BlockOf<256> {
  std::byte d[2], qs[32], signs[32], qh[8], scales[8];
};

// Indices; of each group of 32 a word of four times 7 signs and 4 bits of scale.
struct BlockIQ3_XXS : BlockOf<256> {
  std::byte d[2], qs[64], scales_and_signs[32];
};

// Indices with one more bit in `qh`, 4 signs each; a nibble of scale for 32 elements.
struct BlockIQ3_S : BlockOf<256> {
  std::byte d[2], qs[64], qh[8], signs[32], scales[4];
};

// For each group of 32, a word with three more bits of each of four indices, 3 bits of scale and the sign of
// a delta.
struct BlockIQ1_S : BlockOf<256> {
  std::byte d[2], qs[32], qh[16];
};

// For each index, a nibble with three more bits and the sign of a delta; four words of four times 3 bits of
// scale for 16 elements and a nibble of `d`.
struct BlockIQ1_M : BlockOf<256> {
  std::byte qs[32], qh[16], scales[8];
};

// Elements -1, 0 and 1: five in a byte as digits of three (four in `qh`), or 2 bits each.
struct BlockTQ1_0 : BlockOf<256> {
  std::byte qs[48], qh[4], d[2];
};
struct BlockTQ2_0 : BlockOf<256> {
  std::byte qs[64], d[2];
};

}  // namespace quire::runner::weights
