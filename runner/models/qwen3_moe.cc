#include <string_view>

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

// Mellum: windows in some layers, which have rotary angles of their own.
api::Result<std::unique_ptr<Model>> LoadMellum(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const auto rope = [](std::string_view type, double theta) {
    return RopeQuery{
        .head_dim = 0, .layer_type = type, .theta = {}, .default_theta = theta, .partial_allowed = true};
  };
  DecoderForm form = ReadMixtureForm(
      read, {.given = {.head_dim = 128, .norm_eps = 1e-6F}, .rope = rope("full_attention", 500000)}, {});
  RopeQuery sliding = rope("sliding_attention", 10000);
  sliding.head_dim = form.decoder.head_dim;
  form.ropes.push_back(ReadRope(read, sliding));
  form.SetWindows(ReadWindows(
      read, form.decoder.layers, [](int32_t, int32_t) { return false; }, 0, 1024));
  for (LayerForm& layer : form.layers) layer.rope = layer.window > 0 ? 1 : 0;
  form.qk_norm = QkNorm::kHeads;
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
