// A decoded image.
#pragma once

#include <cstdint>
#include <vector>

namespace quire::runner::images {

struct Bitmap {
  int32_t width = 0, height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
};

}  // namespace quire::runner::images
