#include "runner/kernels/testing/amx_model.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runner/kernels/amx_tiles.h"

// Everything after this line is compiled for the instruction set; nothing it includes may come later.
#if defined(__clang__)
#pragma clang attribute push(                                                               \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")
#endif
#define QUIRE_INLINE [[gnu::always_inline]] inline
#define QUIRE_INLINE_LAMBDA __attribute__((always_inline))

namespace quire::runner::kernels {
namespace {

#include "runner/kernels/int8_gemm.inl"
#include "runner/kernels/int8_gemm_avx512.inl"

// Tiles as the manual describes them, instruction by instruction. What would be an invalid-opcode or
// general-protection exception ends the process.
class TileModel {
 public:
  void Configure(const TileShape& shape) {
    Require(shape.palette == 1 && shape.start_row == 0, "palette");
    for (size_t tile = 0; tile < 16; ++tile) {
      const bool exists = tile < TileShape::kTiles;
      Require(shape.rows[tile] <= (exists ? TileShape::kMaxRows : 0), "rows");
      Require(shape.row_bytes[tile] <= (exists ? TileShape::kMaxRowBytes : 0), "bytes of a row");
      Require((shape.rows[tile] == 0) == (shape.row_bytes[tile] == 0), "a tile of no rows or no bytes");
    }
    shape_ = shape;
    configured_ = true;
    std::memset(tiles_, 0, sizeof(tiles_));
  }
  void Release() {
    configured_ = false;
    std::memset(tiles_, 0, sizeof(tiles_));
  }
  template <int kTile>
  void Zero() {
    RequireTile(kTile);
    std::memset(tiles_[kTile], 0, sizeof(tiles_[kTile]));
  }
  template <int kTile>
  void Load(const void* from, size_t stride) {
    Zero<kTile>();
    for (size_t row = 0; row < shape_.rows[kTile]; ++row) {
      std::memcpy(tiles_[kTile][row], static_cast<const std::byte*>(from) + row * stride,
                  shape_.row_bytes[kTile]);
    }
  }
  template <int kTile>
  void Store(void* to, size_t stride) {
    RequireTile(kTile);
    for (size_t row = 0; row < shape_.rows[kTile]; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * stride, tiles_[kTile][row], shape_.row_bytes[kTile]);
    }
  }
  template <int kSum, int kA, int kB>
  void DotSigned() {
    static_assert(kSum != kA && kSum != kB && kA != kB);
    RequireTile(kSum);
    RequireTile(kA);
    RequireTile(kB);
    Require(shape_.rows[kSum] == shape_.rows[kA] && shape_.row_bytes[kSum] == shape_.row_bytes[kB] &&
                shape_.row_bytes[kA] == 4 * shape_.rows[kB] && shape_.row_bytes[kSum] % 4 == 0,
            "shapes of a product");
    for (size_t m = 0; m < shape_.rows[kSum]; ++m) {
      for (size_t k = 0; k < shape_.row_bytes[kA] / 4U; ++k) {
        for (size_t n = 0; n < shape_.row_bytes[kSum] / 4U; ++n) {
          int32_t sum = 0;
          std::memcpy(&sum, tiles_[kSum][m] + 4 * n, sizeof(sum));
          for (size_t i = 0; i < 4; ++i) {
            sum +=
                static_cast<int8_t>(tiles_[kA][m][4 * k + i]) * static_cast<int8_t>(tiles_[kB][k][4 * n + i]);
          }
          std::memcpy(tiles_[kSum][m] + 4 * n, &sum, sizeof(sum));
        }
      }
    }
  }

 private:
  static void Require(bool valid, const char* what) {
    if (valid) return;
    std::fprintf(stderr, "AMX model: invalid %s\n", what);
    std::abort();
  }
  void RequireTile(int tile) const {
    Require(configured_ && shape_.rows[tile] > 0, "tile: it is not configured");
  }

  TileShape shape_;
  bool configured_ = false;
  uint8_t tiles_[TileShape::kTiles][TileShape::kMaxRows][TileShape::kMaxRowBytes] = {};
};

#include "runner/kernels/int8_gemm_amx.inl"

}  // namespace
}  // namespace quire::runner::kernels
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace quire::runner::kernels::test {

Int8Gemm* Int8GemmAmxModel(weights::DataType type) {
  return Int8GemmAvx512(type) != nullptr ? Int8GemmOf<Amx<TileModel>>(type) : nullptr;
}

}  // namespace quire::runner::kernels::test

#else

namespace quire::runner::kernels::test {
Int8Gemm* Int8GemmAmxModel(weights::DataType) { return nullptr; }
}  // namespace quire::runner::kernels::test

#endif
