#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

DecoderForm ReadQwen(ConfigReader& read) {
  const int32_t first = read.Small({"max_window_layers", ""}, 0, kMaxLayers, 28);
  DecoderForm form =
      ReadDecoderForm(read, {.given = {.norm_eps = 1e-6F},
                             .slides = [](int32_t layer, int32_t from) { return layer >= from; },
                             .period = first,
                             .given_window = 4096});
  // Published models carry a window that they do not use; where one is used, the first layers still see
  // everything.
  if (!read.Boolean({"use_sliding_window", ""}, false)) {
    for (LayerForm& layer : form.layers) layer.window = 0;
  }
  return form;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadQwen2(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadQwen(read);
  form.attention_bias = Bias::kPresent;
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadQwen3(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadQwen(read);
  form.qk_norm = QkNorm::kHeads;
  const bool biased = read.Boolean({"attention_bias", ""}, false);
  form.attention_bias = form.out_bias = biased ? Bias::kPresent : Bias::kAbsent;
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
