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

// Images of any shape are resized to nearly the same number of tokens.
class Gemma4Processor final : public ImageProcessor {
 public:
  struct Settings {
    Filter filter = Filter::kBicubic;
    PatchForm form;
    int32_t pooled = 3;  // patches a side of a token
    int32_t tokens_max = 280;
    std::string begin, token, end;
  };
  explicit Gemma4Processor(Settings settings) : settings_(std::move(settings)) {}

  const std::string& placeholder() const override { return settings_.token; }
  const std::string& image_token() const override { return settings_.token; }

  api::Result<PreparedImage> Prepare(const Bitmap& image) const override {
    const ImageSize size = SizeOf(image);
    if (size.width == 0 || size.height == 0) {
      return api::Fail(
          api::ErrorCode::kInvalidArgument,
          fmt::format("the image has {} x {} pixels; this model cannot see sides that differ that "
                      "much",
                      image.width, image.height));
    }
    const auto resized = ResizeWithin(image, size, settings_.filter);
    if (!resized) return std::unexpected(resized.error());
    const auto tokens = static_cast<int32_t>(size.width / unit() * (size.height / unit()));
    TileCutter cutter(settings_.form);
    cutter.CutAll(*resized, tokens);
    return cutter.Finish(settings_.begin + Repeat(settings_.token, tokens) + settings_.end);
  }

 private:
  int64_t unit() const { return int64_t{settings_.form.size} * settings_.pooled; }

  // The largest size of this shape within the tokens, in multiples of a token's side; 0: there is none.
  ImageSize SizeOf(const Bitmap& image) const {
    const auto width = static_cast<double>(image.width), height = static_cast<double>(image.height);
    const int64_t area = settings_.tokens_max * unit() * unit();
    const double scale = std::sqrt(static_cast<double>(area) / (width * height));
    const auto side = [&](double length) {
      return static_cast<int64_t>(std::floor(scale * length / static_cast<double>(unit()))) * unit();
    };
    ImageSize size{side(width), side(height)};
    const auto along = [&](double longer, double shorter) {
      return std::min(static_cast<int64_t>(std::floor(longer / shorter)), int64_t{settings_.tokens_max}) *
             unit();
    };
    if (size.width == 0 && size.height == 0) return {};
    if (size.height == 0) size = {along(width, height), unit()};
    if (size.width == 0) size = {unit(), along(height, width)};
    return size.width * size.height > area ? ImageSize() : size;
  }

  const Settings settings_;
};

}  // namespace

ProcessorPtr ReadGemma4(ProcessorKeys& keys) {
  constexpr int32_t kPatchLimit = 64, kTokenLimit = 4096;
  Gemma4Processor::Settings settings;
  settings.form.order = ValueOrder::kRowColumnChannel;
  settings.form.size = keys.Integer(
      {"processor/image_processor/patch_size", "config/vision_config/patch_size", "tower/patch_size"}, 16, 1,
      kPatchLimit);
  settings.pooled = keys.Integer({"processor/image_processor/pooling_kernel_size",
                                  "config/vision_config/pooling_kernel_size", "tower/projector.scale_factor"},
                                 3, 1, 16);
  settings.tokens_max = keys.Integer({"processor/image_processor/max_soft_tokens",
                                      "processor/image_seq_length", "config/vision_soft_tokens_per_image"},
                                     280, 1, kTokenLimit);
  settings.form.values = keys.Scale({.normalize = false, .mean = {0, 0, 0}, .deviation = {1, 1, 1}}).Table();
  settings.filter = keys.Resample(Filter::kBicubic);
  settings.begin = keys.Text({"tokenizer/boi_token"}, "<|image>");
  settings.token = keys.Text({"tokenizer/image_token"}, "<|image|>");
  settings.end = keys.Text({"tokenizer/eoi_token"}, "<image|>");
  return std::make_unique<Gemma4Processor>(std::move(settings));
}

}  // namespace quire::runner::images
