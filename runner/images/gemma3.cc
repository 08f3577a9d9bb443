#include <string>
#include <utility>

#include "runner/images/image_processor.h"
#include "runner/images/patches.h"
#include "runner/images/processor_families.h"
#include "runner/images/processor_keys.h"
#include "runner/images/resize.h"

namespace quire::runner::images {
namespace {

// Every image becomes a square of one size, whatever its sides.
class Gemma3Processor final : public ImageProcessor {
 public:
  Gemma3Processor(ImageSize size, Filter filter, const PatchForm& form, int32_t tokens, std::string begin,
                  std::string token, std::string end)
      : size_(size),
        filter_(filter),
        form_(form),
        tokens_(tokens),
        begin_(std::move(begin)),
        token_(std::move(token)),
        end_(std::move(end)) {}

  const std::string& placeholder() const override { return begin_; }
  const std::string& image_token() const override { return token_; }
  api::Result<PreparedImage> Prepare(const Bitmap& image) const override {
    TileCutter cutter(form_);
    cutter.CutAll(
        Resize(image, static_cast<int32_t>(size_.width), static_cast<int32_t>(size_.height), filter_),
        tokens_);
    return cutter.Finish("\n\n" + begin_ + Repeat(token_, tokens_) + end_ + "\n\n");
  }

 private:
  const ImageSize size_;
  const Filter filter_;
  const PatchForm form_;
  const int32_t tokens_;
  const std::string begin_, token_, end_;
};

}  // namespace

ProcessorPtr ReadGemma3(ProcessorKeys& keys) {
  constexpr int32_t kSide = 896, kPatch = 14, kTokens = 256, kSideLimit = 4096;
  const int32_t side =
      keys.Integer({"config/vision_config/image_size", "tower/image_size"}, kSide, 1, kSideLimit);
  const int32_t height = keys.Integer({"processor/image_processor/size/height"}, side, 1, kSideLimit);
  const int32_t width = keys.Integer({"processor/image_processor/size/width"}, side, 1, kSideLimit);
  PatchForm form;
  form.size = keys.Integer({"config/vision_config/patch_size", "tower/patch_size"}, kPatch, 1, kSideLimit);
  keys.Require(height == side && width == side && side % form.size == 0,
               "images are squares of image_size, a multiple of patch_size");
  form.values = keys.Scale({}).Table();
  // Its processor passes false for do_pan_and_scan, whatever the file says.
  // A file of llama.cpp says how many patches a side go into a token.
  const int32_t pooled = keys.Integer({"tower/projector.scale_factor"}, 0, 0, kSideLimit);
  const int32_t tokens_a_side = pooled == 0 ? 0 : side / form.size / pooled;
  const int32_t tokens = keys.Integer({"config/mm_tokens_per_image", "gguf/gemma3.mm.tokens_per_image"},
                                      pooled == 0 ? kTokens : tokens_a_side * tokens_a_side, 1, kSideLimit);
  keys.Require(keys.Integer({"processor/image_seq_length", "processor/image_processor/image_seq_length"},
                            tokens, 1, kSideLimit) == tokens,
               "image_seq_length equals mm_tokens_per_image");
  const Filter filter = keys.Resample(Filter::kBilinear);
  return std::make_unique<Gemma3Processor>(ImageSize{width, height}, filter, form, tokens,
                                           keys.Text({"tokenizer/boi_token"}, "<start_of_image>"),
                                           keys.Text({"tokenizer/image_token"}, "<image_soft_token>"),
                                           keys.Text({"tokenizer/eoi_token"}, "<end_of_image>"));
}

}  // namespace quire::runner::images
