#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadQwen2Moe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form =
      ReadMixtureForm(read, {.given = {.norm_eps = 1e-6F}}, {.normalize = false, .as_stored = true});
  form.attention_bias = read.gguf() || read.Boolean({"qkv_bias", ""}, true) ? Bias::kPresent : Bias::kAbsent;
  MixtureConfig& mixture = form.mixture.config;
  const int32_t wide = read.gguf() ? ReadFeedForward(read) : 5632;
  mixture.shared_width = read.Small({"shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
                                    1, kMaxWidth, wide);
  mixture.shared_gate = true;
  form.mixture.names.shared = {.gate = {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                               .up = {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                               .down = {"mlp.shared_expert.down_proj", "ffn_down_shexp"}};
  // These have a meaning with use_sliding_window only.
  read.Ignore({"sliding_window", "max_window_layers", "layer_types"});
  if (read.Boolean({"use_sliding_window", ""}, false)) {
    const int32_t below = read.Small({"max_window_layers", ""}, 0, kMaxLayers, 28);
    form.SetWindows(ReadWindows(
        read, form.decoder.layers, [](int32_t layer, int32_t end) { return layer % 2 == 0 && layer < end; },
        below, 4096));
  }
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
