#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

// GGUF files only: no reference runs directories.
api::Result<std::unique_ptr<Model>> LoadSmallThinker(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadMixtureForm(
      read, {.given = {.norm_eps = 1e-6F, .activation = Activation::kRelu}, .rope = {.default_theta = 10000}},
      {.normalize = true});
  // With windows, every fourth layer has neither a window nor positions.
  form.SetWindows(
      ReadWindows(read, form.decoder.layers, [](int32_t layer, int32_t) { return layer % 4 != 0; }));
  const bool windows = read.Integer({"", "attention.sliding_window"}, 0, kMaxContext, 0) > 0;
  for (LayerForm& layer : form.layers) {
    if (windows && layer.window == 0) layer.rope = LayerForm::kNoRope;
  }
  form.mixture.early = true;
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
