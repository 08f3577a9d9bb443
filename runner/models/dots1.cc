#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadDots1(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadMixtureForm(read, {.given = {.norm_eps = 1e-6F}},
                                     {.score = MixtureConfig::Score::kSigmoid, .normalize = read.gguf()});
  form.qk_norm = QkNorm::kHeads;
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  if (read.gguf()) return BuildDeclared(read, std::move(files), form);
  const int32_t first = read.Small({"max_window_layers", ""}, 0, kMaxLayers, 62);
  form.SetWindows(ReadWindows(
      read, form.decoder.layers, [](int32_t layer, int32_t from) { return layer >= from; }, first, 4096));
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
