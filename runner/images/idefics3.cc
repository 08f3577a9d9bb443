#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "runner/images/image_processor.h"
#include "runner/images/patches.h"
#include "runner/images/processor_families.h"
#include "runner/images/processor_keys.h"
#include "runner/images/resize.h"

namespace quire::runner::images {
namespace {

// Idefics 3 and SmolVLM: a grid of square tiles, and one of the whole image.
class Idefics3Processor final : public ImageProcessor {
 public:
  struct Settings {
    Filter filter = Filter::kLanczos;
    PatchForm form;
    int32_t longest = 0;  // of the image, in pixels
    int32_t tile = 0;     // pixels a side
    int32_t tokens = 0;   // of a tile
    bool split = true;
  };
  explicit Idefics3Processor(const Settings& settings) : settings_(settings) {}

  const std::string& placeholder() const override { return token_; }
  const std::string& image_token() const override { return token_; }

  api::Result<PreparedImage> Prepare(const Bitmap& image) const override {
    const int32_t side = settings_.tile;
    auto resized = ResizeWithin(image, LargestSize(image), settings_.filter);
    if (!resized) return std::unexpected(resized.error());
    TileCutter cutter(settings_.form);
    std::string text;
    if (settings_.split) {
      resized = ResizeWithin(*resized, GridSize(*resized), settings_.filter);
      if (!resized) return std::unexpected(resized.error());
    }
    if (settings_.split && (resized->width > side || resized->height > side)) {
      for (int32_t row = 0; row < resized->height / side; ++row) {
        for (int32_t column = 0; column < resized->width / side; ++column) {
          Cut(*resized, column * side, row * side, cutter);
          text += kAround + fmt::format("<row_{}_col_{}>", row + 1, column + 1) +
                  Repeat(token_, settings_.tokens);
        }
        text += '\n';
      }
      text += '\n';
    }
    Cut(Resize(*resized, side, side, settings_.filter), 0, 0, cutter);
    return cutter.Finish(text + kAround + "<global-img>" + Repeat(token_, settings_.tokens) + kAround);
  }

 private:
  static constexpr int32_t kLongestMax = 4096;
  inline static const std::string kAround = "<fake_token_around_image>";

  // A convolution that steps by patches does not reach what is left of the tile.
  void Cut(const Bitmap& image, int32_t left, int32_t top, TileCutter& cutter) const {
    const int32_t reached = settings_.tile / settings_.form.size * settings_.form.size;
    cutter.Cut(image, {left, top, reached, reached}, settings_.tokens);
  }

  // The longer side becomes `longest`; the other is rounded to an even number. Both are at most kLongestMax.
  ImageSize LargestSize(const Bitmap& image) const {
    const auto scaled = [](int64_t longer, double ratio) {
      return static_cast<int64_t>(static_cast<double>(longer) * ratio);
    };
    const bool wide = image.width >= image.height;
    const double shape = static_cast<double>(image.width) / image.height;
    const auto other = [&](int64_t longer, double ratio) {
      return wide ? static_cast<int64_t>(static_cast<double>(longer) / ratio) : scaled(longer, ratio);
    };
    int64_t longer = settings_.longest;
    int64_t shorter = other(longer, shape);
    shorter = std::max<int64_t>(shorter + shorter % 2, 1);
    const double rounded_shape = wide ? static_cast<double>(longer) / static_cast<double>(shorter)
                                      : static_cast<double>(shorter) / static_cast<double>(longer);
    if (longer > kLongestMax) {
      longer = kLongestMax;
      shorter = std::max<int64_t>(other(longer, rounded_shape), 1);
    }
    return wide ? ImageSize{longer, shorter} : ImageSize{shorter, longer};
  }

  // Both sides become multiples of a tile's.
  ImageSize GridSize(const Bitmap& image) const {
    const int64_t side = settings_.tile;
    const auto up = [side](int64_t length) { return (length + side - 1) / side * side; };
    const double shape = static_cast<double>(image.width) / image.height;
    if (image.width >= image.height) {
      const int64_t width = up(image.width);
      return {width, up(static_cast<int64_t>(static_cast<double>(width) / shape))};
    }
    const int64_t height = up(image.height);
    return {up(static_cast<int64_t>(static_cast<double>(height) * shape)), height};
  }

  const Settings settings_;
  const std::string token_ = "<image>";
};

}  // namespace

ProcessorPtr ReadIdefics3(ProcessorKeys& keys) {
  constexpr int32_t kSideLimit = 8192, kTilesLimit = 32;
  Idefics3Processor::Settings settings;
  settings.form.size = keys.Integer({"config/vision_config/patch_size", "tower/patch_size"}, 14, 1, 256);
  settings.tile = keys.Integer({"processor/image_processor/max_image_size/longest_edge",
                                "config/vision_config/image_size", "tower/image_size"},
                               364, 1, kSideLimit);
  settings.longest = keys.Integer({"processor/image_processor/size/longest_edge", "tower/preproc_image_size"},
                                  4 * settings.tile, 1, kSideLimit);
  settings.split = keys.Flag({"processor/image_processor/do_image_splitting"}, true);
  const int32_t shuffled = keys.Integer({"config/scale_factor", "tower/projector.scale_factor"}, 2, 1, 16);
  const int32_t tokens_a_side = settings.tile / settings.form.size / shuffled;
  settings.tokens = tokens_a_side * tokens_a_side;
  keys.Require(tokens_a_side > 0 && settings.tile / settings.form.size % shuffled == 0 &&
                   settings.longest / settings.tile < kTilesLimit,
               "tiles are squares of tokens, and not too small");
  keys.Require(keys.Integer({"processor/image_seq_len"}, settings.tokens, 1, 1 << 20) == settings.tokens,
               "image_seq_len is the number of tokens of a tile");
  settings.form.values = keys.Scale({}).Table();
  settings.filter = keys.Resample(Filter::kLanczos);
  return std::make_unique<Idefics3Processor>(settings);
}

}  // namespace quire::runner::images
