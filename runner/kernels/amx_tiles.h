// The shape of AMX tiles as LDTILECFG reads it (Intel 64 and IA-32 Architectures Software Developer's Manual,
// volume 2: 64 bytes, palette 1).
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::runner::kernels {

struct alignas(64) TileShape {
  static constexpr size_t kTiles = 8, kMaxRows = 16, kMaxRowBytes = 64;

  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};  // of tile i; the last eight are reserved
  uint8_t rows[16] = {};

  // REQUIRES: rows <= kMaxRows; bytes <= kMaxRowBytes, a multiple of 4.
  void Set(int tile, size_t tile_rows, size_t bytes) {
    rows[tile] = static_cast<uint8_t>(tile_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};
static_assert(sizeof(TileShape) == 64 && offsetof(TileShape, row_bytes) == 16 &&
              offsetof(TileShape, rows) == 48);

}  // namespace quire::runner::kernels
