// Resizing of 8-bit images as torchvision does it with antialias, which is what published processors use.
#pragma once

#include <cstdint>

#include "runner/images/bitmap.h"

namespace quire::runner::images {

enum class Filter : uint8_t { kBilinear, kBicubic, kLanczos };

// Bit-identical to torch.nn.functional.interpolate of uint8 values with antialias: rows first, then columns.
// Each pass rounds to 8 bits and has weights of 16 bits, with as many fraction bits as the largest of them
// leaves. (Pillow has 22 fraction bits; some values differ by one.) REQUIRES: sides above 0.
Bitmap Resize(const Bitmap& image, int32_t width, int32_t height, Filter filter);

}  // namespace quire::runner::images
