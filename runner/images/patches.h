// Patches out of pixels, and the identity of what was cut. What all processors share.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "runner/images/bitmap.h"
#include "runner/images/pixel_digest.h"
#include "runner/images/prepared_image.h"

namespace quire::runner::images {

enum class ValueOrder : uint8_t { kChannelRowColumn, kRowColumnChannel };

// How pixels become values, as torchvision computes them in float32.
struct PixelScale {
  bool rescale = true, normalize = true;
  double factor = 1.0 / 255;
  std::array<double, 3> mean = {0.5, 0.5, 0.5}, deviation = {0.5, 0.5, 0.5};

  // [channel][pixel]
  std::array<std::array<float, 256>, 3> Table() const;
};

struct PatchForm {
  int32_t size = 16;  // pixels a side
  int32_t merge = 1;  // patches come in blocks of merge x merge; 1: rows of the tile one after the other
  ValueOrder order = ValueOrder::kChannelRowColumn;
  std::array<std::array<float, 256>, 3> values = {};  // PixelScale::Table()
};

struct Rectangle {
  int32_t left = 0, top = 0, width = 0, height = 0;
};

// Collects the tiles of one image.
class TileCutter {
 public:
  explicit TileCutter(const PatchForm& form) : form_(form) {}

  // Cuts a rectangle of `image`. REQUIRES: it is in the image; its sides are multiples of size * merge.
  void Cut(const Bitmap& image, const Rectangle& area, int32_t tokens, bool grid = false);
  void CutAll(const Bitmap& image, int32_t tokens, bool grid = false) {
    Cut(image, {0, 0, image.width, image.height}, tokens, grid);
  }
  // What was cut, with this text. REQUIRES: called once, last.
  PreparedImage Finish(std::string prompt_text);

 private:
  const PatchForm& form_;
  PreparedImage image_;
  PixelDigest digest_;
};

}  // namespace quire::runner::images
