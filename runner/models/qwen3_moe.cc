#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadQwen3Moe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  // GGUF has no key for norm_topk_prob.
  DecoderForm form = ReadMixtureForm(read, {.given = {.norm_eps = 1e-6F}}, {.normalize = read.gguf()});
  form.qk_norm = QkNorm::kHeads;
  const bool biased = read.Boolean({"attention_bias", ""}, false);
  form.attention_bias = form.out_bias = biased ? Bias::kPresent : Bias::kAbsent;
  // sliding_window has a meaning with use_sliding_window only. Unlike in Qwen3, it is then for all layers.
  read.Ignore({"sliding_window", "max_window_layers"});
  if (read.Boolean({"use_sliding_window", ""}, false)) {
    form.SetWindows(ReadWindows(
        read, form.decoder.layers, [](int32_t, int32_t) { return true; }, 0, 4096));
  }
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
