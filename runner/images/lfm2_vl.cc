#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runner/images/decode.h"
#include "runner/images/image_processor.h"
#include "runner/images/patches.h"
#include "runner/images/processor_families.h"
#include "runner/images/processor_keys.h"
#include "runner/images/resize.h"

namespace quire::runner::images {
namespace {

// Small images keep their size; large ones become a grid of tiles, and one more of the whole image.
class Lfm2VlProcessor final : public ImageProcessor {
 public:
  struct Settings {
    Filter filter = Filter::kBilinear;
    PatchForm form;
    int32_t downsample = 2;  // patches a side of a token
    int32_t tokens_min = 64, tokens_max = 256;
    bool split = true, thumbnail = true;
    int32_t tiles_min = 2, tiles_max = 10;
    int32_t tile = 512;  // pixels a side
    double tolerance = 2;
    std::string begin, token, thumbnail_token, end;
  };
  explicit Lfm2VlProcessor(Settings settings) : settings_(std::move(settings)) {}

  const std::string& placeholder() const override { return settings_.token; }
  const std::string& image_token() const override { return settings_.token; }

  api::Result<PreparedImage> Prepare(const Bitmap& image) const override {
    TileCutter cutter(settings_.form);
    std::string text = settings_.begin;
    const Grid grid = IsLarge(image) ? FindGrid(image) : Grid{1, 1};
    if (grid.columns * grid.rows > 1) CutGrid(image, grid, cutter, text);
    if (grid.columns * grid.rows == 1 || settings_.thumbnail) {
      if (grid.columns * grid.rows > 1) text += settings_.thumbnail_token;
      const ImageSize size =
          SmartSize({image.width, image.height}, unit(), unit(), settings_.tokens_min * unit() * unit(),
                    settings_.tokens_max * unit() * unit());
      const auto tokens = static_cast<int32_t>(size.width / unit() * (size.height / unit()));
      const auto resized = ResizeWithin(image, size, settings_.filter);
      if (!resized) return std::unexpected(resized.error());
      cutter.CutAll(*resized, tokens);
      text += Repeat(settings_.token, tokens);
    }
    return cutter.Finish(text + settings_.end);
  }

 private:
  struct Grid {
    int32_t columns, rows;
  };

  int64_t unit() const { return int64_t{settings_.form.size} * settings_.downsample; }

  bool IsLarge(const Bitmap& image) const {
    if (!settings_.split) return false;
    const auto side = [this](int32_t length) {
      return std::max<int64_t>(settings_.form.size, RoundToMultiple(length, unit()));
    };
    const int64_t area = side(image.width) * side(image.height);
    return static_cast<double>(area) >
           static_cast<double>(settings_.tokens_max * unit() * unit()) * settings_.tolerance;
  }

  // The grid whose shape is next to the image's. Of two as near, the later one where the image has more than
  // half of its pixels.
  Grid FindGrid(const Bitmap& image) const {
    const double shape = static_cast<double>(image.width) / image.height;
    const double area = static_cast<double>(image.width) * image.height;
    double best = HUGE_VAL;
    Grid grid{1, 1};
    for (const Grid& candidate : GridsBySize()) {
      const double difference = std::abs(shape - static_cast<double>(candidate.columns) / candidate.rows);
      const double pixels =
          static_cast<double>(settings_.tile) * settings_.tile * candidate.columns * candidate.rows;
      if (difference < best || (difference == best && area > 0.5 * pixels)) grid = candidate;
      best = std::min(best, difference);
    }
    return grid;
  }

  // Two grids of one size are never both the nearest: between their shapes lies that of a smaller grid.
  std::vector<Grid> GridsBySize() const {
    std::vector<Grid> grids;
    for (int32_t tiles = settings_.tiles_min; tiles <= settings_.tiles_max; ++tiles) {
      for (int32_t columns = 1; columns <= tiles; ++columns) {
        if (tiles % columns == 0) grids.push_back({columns, tiles / columns});
      }
    }
    return grids;
  }

  void CutGrid(const Bitmap& image, Grid grid, TileCutter& cutter, std::string& text) const {
    const int32_t side = settings_.tile;
    const auto tokens_a_side = static_cast<int32_t>(side / unit());
    const Bitmap resized = Resize(image, side * grid.columns, side * grid.rows, settings_.filter);
    for (int32_t row = 0; row < grid.rows; ++row) {
      for (int32_t column = 0; column < grid.columns; ++column) {
        cutter.Cut(resized, {column * side, row * side, side, side}, tokens_a_side * tokens_a_side);
        text += fmt::format("<|img_row_{}_col_{}|>", row + 1, column + 1);
        text += Repeat(settings_.token, tokens_a_side * tokens_a_side);
      }
    }
  }

  const Settings settings_;
};

}  // namespace

ProcessorPtr ReadLfm2Vl(ProcessorKeys& keys) {
  constexpr int32_t kPatchLimit = 256, kTokenLimit = 1 << 16, kTileLimit = 4096, kTilesLimit = 64;
  Lfm2VlProcessor::Settings settings;
  settings.form.order = ValueOrder::kRowColumnChannel;
  settings.form.size = keys.Integer(
      {"processor/image_processor/encoder_patch_size", "config/vision_config/patch_size", "tower/patch_size"},
      16, 1, kPatchLimit);
  settings.downsample = keys.Integer({"processor/image_processor/downsample_factor",
                                      "config/downsample_factor", "tower/projector.scale_factor"},
                                     2, 1, 16);
  // Its first files had these keys elsewhere.
  const auto integer = [&keys](const std::string& name, int32_t fallback, int32_t max) {
    return keys.Integer({"processor/image_processor/" + name, "processor/" + name, "config/" + name},
                        fallback, 1, max);
  };
  settings.tokens_min = integer("min_image_tokens", settings.tokens_min, kTokenLimit);
  settings.tokens_max = integer("max_image_tokens", settings.tokens_max, kTokenLimit);
  settings.tiles_min = integer("min_tiles", settings.tiles_min, kTilesLimit);
  settings.tiles_max = integer("max_tiles", settings.tiles_max, kTilesLimit);
  settings.tile = integer("tile_size", settings.tile, kTileLimit);
  settings.split =
      keys.Flag({"processor/image_processor/do_image_splitting", "config/do_image_splitting"}, true) &&
      settings.tiles_max > 1;
  settings.thumbnail = keys.Flag({"processor/image_processor/use_thumbnail", "config/use_thumbnail"}, true);
  settings.tolerance = keys.Number(
      {"processor/image_processor/max_pixels_tolerance", "config/max_pixels_tolerance"}, 2, 0, 1e6);
  keys.Require(settings.tokens_min <= settings.tokens_max, "min_image_tokens is at most max_image_tokens");
  keys.Require(!settings.split || settings.tiles_min <= settings.tiles_max, "min_tiles is at most max_tiles");
  keys.Require(int64_t{settings.tile} * settings.tile * settings.tiles_max <= kPixelsMax,
               "max_tiles tiles are not too large");
  keys.Require(!settings.split || settings.tile % (settings.form.size * settings.downsample) == 0,
               "tile_size is a multiple of a token's side");
  settings.form.values = keys.Scale({}).Table();
  settings.filter = keys.Resample(Filter::kBilinear);
  settings.begin = keys.Text({"tokenizer/image_start_token"}, "<|image_start|>");
  settings.token = keys.Text({"tokenizer/image_token"}, "<image>");
  settings.thumbnail_token =
      keys.Text({"tokenizer/image_thumbnail_token", "tokenizer/image_thumbnail"}, "<|img_thumbnail|>");
  settings.end = keys.Text({"tokenizer/image_end_token"}, "<|image_end|>");
  return std::make_unique<Lfm2VlProcessor>(std::move(settings));
}

}  // namespace quire::runner::images
