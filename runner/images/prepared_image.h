// An image as a vision tower reads it: tiles of patches, and what stands for it in the prompt.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace quire::runner::images {

// A rectangle of patches. Patches are in the order that the tower takes: rows of the image one after the
// other, or blocks of patches that it merges.
struct Tile {
  int32_t rows = 0, columns = 0;  // patches
  std::vector<float> patches;     // [rows * columns, values of a patch], normalized
  int32_t tokens = 0;             // rows of the prompt that it takes
  // Tokens of a row and of a column where positions are those of a grid (M-RoPE); 0: they count up by one.
  int32_t grid_rows = 0, grid_columns = 0;
};

struct PreparedImage {
  std::vector<Tile> tiles;  // in the order of the prompt
  // What takes the place of the placeholder that the template writes: markup, and the image token once for
  // each token of the tiles.
  std::string prompt_text;
  std::array<uint8_t, 32> digest = {};  // SHA-256 of the tiles' shapes and pixels

  int32_t tokens() const {
    int32_t sum = 0;
    for (const Tile& tile : tiles) sum += tile.tokens;
    return sum;
  }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const Tile& tile : tiles) sum += static_cast<int64_t>(tile.patches.size() * sizeof(float));
    return sum;
  }
};

}  // namespace quire::runner::images
