#include <fmt/format.h>

#include <algorithm>
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

constexpr int64_t kRatioMax = 200;  // of an image's sides

// Images keep their size as far as an area allows.
class QwenVlProcessor final : public ImageProcessor {
 public:
  struct Settings {
    Filter filter = Filter::kBicubic;
    PatchForm form;
    int64_t area_min = 0, area_max = 0;
    std::string begin, token, end;
  };
  explicit QwenVlProcessor(Settings settings)
      : settings_(std::move(settings)), in_text_(settings_.begin + settings_.token + settings_.end) {}

  const std::string& placeholder() const override { return settings_.token; }
  const std::string& image_token() const override { return settings_.token; }
  const std::string& text_placeholder() const override { return in_text_; }
  api::Result<PreparedImage> Prepare(const Bitmap& image) const override {
    const PatchForm& form = settings_.form;
    const int64_t shorter = std::min(image.width, image.height), longer = std::max(image.width, image.height);
    if (longer > kRatioMax * shorter) {
      return api::Fail(
          api::ErrorCode::kInvalidArgument,
          fmt::format("the image has {} x {} pixels; this model takes images whose longer side is at "
                      "most {} times the other",
                      image.width, image.height, kRatioMax));
    }
    const int64_t unit = int64_t{form.size} * form.merge;
    const ImageSize size =
        SmartSize({image.width, image.height}, unit, 0, settings_.area_min, settings_.area_max);
    const auto tokens = static_cast<int32_t>(size.width / unit * (size.height / unit));
    const auto resized = ResizeWithin(image, size, settings_.filter);
    if (!resized) return std::unexpected(resized.error());
    TileCutter cutter(form);
    cutter.CutAll(*resized, tokens, /*grid=*/true);
    return cutter.Finish(Repeat(settings_.token, tokens));
  }

 private:
  const Settings settings_;
  const std::string in_text_;
};

}  // namespace

ProcessorPtr ReadQwenVl(ProcessorKeys& keys, bool third_generation) {
  constexpr int32_t kPatchLimit = 256, kAreaLimit = 1 << 26;
  QwenVlProcessor::Settings settings;
  PatchForm& form = settings.form;
  form.size = keys.Integer(
      {"processor/image_processor/patch_size", "config/vision_config/patch_size", "tower/patch_size"},
      third_generation ? 16 : 14, 1, kPatchLimit);
  form.merge = keys.Integer({"processor/image_processor/merge_size",
                             "config/vision_config/spatial_merge_size", "tower/spatial_merge_size"},
                            2, 1, 16);
  const int32_t unit = form.size * form.merge;
  // Files before size had min_pixels and max_pixels, which count where both are there.
  settings.area_min = keys.Integer(
      {"processor/image_processor/min_pixels", "processor/image_processor/size/min_pixels",
       "processor/image_processor/size/shortest_edge", "tower/image_min_pixels", "tower/shortest_edge"},
      third_generation ? 65'536 : 3'136, 1, kAreaLimit);
  settings.area_max = keys.Integer(
      {"processor/image_processor/max_pixels", "processor/image_processor/size/max_pixels",
       "processor/image_processor/size/longest_edge", "tower/image_max_pixels", "tower/longest_edge"},
      third_generation ? 16'777'216 : 12'845'056, 1, kAreaLimit);
  keys.Require(settings.area_min <= settings.area_max && settings.area_max >= int64_t{unit} * unit,
               "the least area of an image is at most the largest, which has a token at least");
  form.values = keys.Scale(third_generation ? PixelScale() : ClipScale()).Table();
  settings.filter = keys.Resample(Filter::kBicubic);
  settings.begin = keys.Text({"tokenizer/vision_bos_token"}, "<|vision_start|>");
  settings.token = keys.Text({"tokenizer/image_token"}, "<|image_pad|>");
  settings.end = keys.Text({"tokenizer/vision_eos_token"}, "<|vision_end|>");
  return std::make_unique<QwenVlProcessor>(std::move(settings));
}

}  // namespace quire::runner::images
