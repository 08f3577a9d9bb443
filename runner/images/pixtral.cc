#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "runner/images/image_processor.h"
#include "runner/images/patches.h"
#include "runner/images/processor_families.h"
#include "runner/images/processor_keys.h"
#include "runner/images/resize.h"

namespace quire::runner::images {
namespace {

// Pixtral and Mistral 3: images keep their shape; a token ends each row of them.
class PixtralProcessor final : public ImageProcessor {
 public:
  struct Settings {
    Filter filter = Filter::kBicubic;
    PatchForm form;
    int32_t merge = 1;  // patches a side of a token
    int32_t longest = 0;
    std::string token, row_end, end;
  };
  explicit PixtralProcessor(Settings settings) : settings_(std::move(settings)) {}

  const std::string& placeholder() const override { return settings_.token; }
  const std::string& image_token() const override { return settings_.token; }

  api::Result<PreparedImage> Prepare(const Bitmap& image) const override {
    const int64_t unit = int64_t{settings_.form.size} * settings_.merge;
    const double ratio = std::max(static_cast<double>(image.height) / settings_.longest,
                                  static_cast<double>(image.width) / settings_.longest);
    const auto side = [&](int32_t length) {
      const int64_t scaled = ratio > 1 ? static_cast<int64_t>(std::floor(length / ratio)) : length;
      return (scaled + unit - 1) / unit * unit;
    };
    const ImageSize size{side(image.width), side(image.height)};
    if (size.width == 0 || size.height == 0) {
      return api::Fail(api::ErrorCode::kInvalidArgument,
                       fmt::format("the image has {} x {} pixels; this model sees at most {} a side, where "
                                   "nothing of the other remains",
                                   image.width, image.height, settings_.longest));
    }
    const auto resized = ResizeWithin(image, size, settings_.filter);
    if (!resized) return std::unexpected(resized.error());
    const auto rows = static_cast<int32_t>(size.height / unit),
               columns = static_cast<int32_t>(size.width / unit);
    TileCutter cutter(settings_.form);
    cutter.CutAll(*resized, rows * columns);
    std::string text;
    for (int32_t row = 0; row < rows; ++row) {
      text += Repeat(settings_.token, columns) + (row + 1 < rows ? settings_.row_end : settings_.end);
    }
    return cutter.Finish(std::move(text));
  }

 private:
  const Settings settings_;
};

}  // namespace

ProcessorPtr ReadPixtral(ProcessorKeys& keys) {
  constexpr int32_t kSideLimit = 8192;
  PixtralProcessor::Settings settings;
  settings.form.size = keys.Integer(
      {"processor/patch_size", "config/vision_config/patch_size", "tower/patch_size"}, 16, 1, 256);
  settings.merge = keys.Integer({"processor/spatial_merge_size", "config/spatial_merge_size",
                                 "tower/spatial_merge_size", "gguf/mistral3.spatial_merge_size"},
                                1, 1, 16);
  settings.longest = keys.Integer(
      {"processor/image_processor/size/longest_edge", "config/vision_config/image_size", "tower/image_size"},
      1024, 1, kSideLimit);
  settings.form.values = keys.Scale(ClipScale()).Table();
  settings.filter = keys.Resample(Filter::kBicubic);
  settings.token = keys.Text({"processor/image_token"}, "[IMG]");
  settings.row_end = keys.Text({"processor/image_break_token"}, "[IMG_BREAK]");
  settings.end = keys.Text({"processor/image_end_token"}, "[IMG_END]");
  return std::make_unique<PixtralProcessor>(std::move(settings));
}

}  // namespace quire::runner::images
