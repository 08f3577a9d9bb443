#include "runner/images/patches.h"

#include <array>
#include <cstddef>
#include <span>
#include <utility>

namespace quire::runner::images {
namespace {

// The values of the patch whose first pixel is at `pixel`; rows of the image lie `stride` bytes apart.
float* CopyPatch(const uint8_t* pixel, size_t stride, const PatchForm& form, float* to) {
  const auto size = static_cast<size_t>(form.size);
  if (form.order == ValueOrder::kRowColumnChannel) {
    for (size_t row = 0; row < size; ++row, pixel += stride) {
      for (size_t i = 0; i < 3 * size; ++i) *to++ = form.values[i % 3][pixel[i]];
    }
    return to;
  }
  for (size_t channel = 0; channel < 3; ++channel) {
    const uint8_t* from = pixel + channel;
    for (size_t row = 0; row < size; ++row, from += stride) {
      for (size_t column = 0; column < size; ++column) *to++ = form.values[channel][from[3 * column]];
    }
  }
  return to;
}

}  // namespace

// A fused subtraction and division in float32, each rounded, of the scaled mean and deviation.
std::array<std::array<float, 256>, 3> PixelScale::Table() const {
  std::array<std::array<float, 256>, 3> table;
  const auto inverse = static_cast<float>(1.0 / factor);
  for (size_t channel = 0; channel < 3; ++channel) {
    auto center = static_cast<float>(mean[channel]), width = static_cast<float>(deviation[channel]);
    if (rescale) {
      center *= inverse;
      width *= inverse;
    }
    for (size_t pixel = 0; pixel < 256; ++pixel) {
      const auto value = static_cast<float>(pixel);
      table[channel][pixel] = normalize ? (value - center) / width
                              : rescale ? value * static_cast<float>(factor)
                                        : value;
    }
  }
  return table;
}

void TileCutter::Cut(const Bitmap& image, const Rectangle& area, int32_t tokens, bool grid) {
  const int32_t block = form_.size * form_.merge;
  Tile tile{
      .rows = area.height / form_.size, .columns = area.width / form_.size, .patches = {}, .tokens = tokens};
  if (grid) {
    tile.grid_rows = area.height / block;
    tile.grid_columns = area.width / block;
  }
  for (const int32_t number : {tile.rows, tile.columns, tokens, tile.grid_rows, tile.grid_columns}) {
    std::array<uint8_t, 4> bytes;
    for (size_t i = 0; i < 4; ++i) bytes[i] = static_cast<uint8_t>(number >> (8 * i));
    digest_.Update(bytes);
  }
  const auto stride = 3 * static_cast<size_t>(image.width);
  const uint8_t* origin =
      image.rgb.data() + static_cast<size_t>(area.top) * stride + 3 * static_cast<size_t>(area.left);
  for (int32_t row = 0; row < area.height; ++row) {
    digest_.Update(
        std::span(origin + static_cast<size_t>(row) * stride, 3 * static_cast<size_t>(area.width)));
  }
  tile.patches.resize(static_cast<size_t>(area.height) * static_cast<size_t>(area.width) * 3);
  float* to = tile.patches.data();
  const auto at = [&](int32_t y, int32_t x) {
    return origin + static_cast<size_t>(y) * stride + 3 * static_cast<size_t>(x);
  };
  for (int32_t top = 0; top < area.height; top += block) {
    for (int32_t left = 0; left < area.width; left += block) {
      for (int32_t y = top; y < top + block; y += form_.size) {
        for (int32_t x = left; x < left + block; x += form_.size) {
          to = CopyPatch(at(y, x), stride, form_, to);
        }
      }
    }
  }
  image_.tiles.push_back(std::move(tile));
}

PreparedImage TileCutter::Finish(std::string prompt_text) {
  image_.prompt_text = std::move(prompt_text);
  image_.digest = digest_.Finish();
  return std::move(image_);
}

}  // namespace quire::runner::images
