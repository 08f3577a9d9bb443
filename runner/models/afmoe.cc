#include <cmath>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadAfmoe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const int32_t period = read.Small({"global_attn_every_n_layers", ""}, 1, kMaxLayers, 4);
  DecoderForm form = ReadMixtureForm(
      read,
      {.given = {.head_dim = read.gguf() ? 0 : 128, .norm_eps = 1e-5F}, .rope = {.default_theta = 10000}},
      {.score = MixtureConfig::Score::kSigmoid,
       .scale = read.Positive({"route_scale", ""}, 1e6, 1),
       .first_dense = read.Small({"num_dense_layers", ""}, 0, kMaxLayers, 1),
       .shared = 2,
       .as_stored = true});
  form.SetWindows(ReadWindows(
      read, form.decoder.layers, [](int32_t layer, int32_t every) { return (layer + 1) % every != 0; },
      read.gguf() ? 4 : period, read.gguf() ? 0 : 1024));
  // Positions are for the layers with a window alone.
  for (LayerForm& layer : form.layers) layer.rope = layer.window > 0 ? 0 : LayerForm::kNoRope;
  read.Require("route_norm", true);
  read.Require("score_func", "sigmoid");
  if (form.mixture.config.groups != 1) read.Fail("n_group: only 1 is supported");
  // The GGUF files are of models with muP.
  if (read.Boolean({"mup_enabled", ""}, read.gguf())) {
    form.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(form.decoder.hidden)));
  }
  form.norms = NormPlaces::kAround;
  form.qk_norm = QkNorm::kHeads;
  form.output_gate = OutputGate::Kind::kSigmoid;
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.names.mlp_norm = {"pre_mlp_layernorm", "ffn_norm"};
  form.names.post_mlp_norm = {"post_mlp_layernorm", "post_ffw_norm"};
  form.mixture.names.router = {"mlp.router.gate", "ffn_gate_inp"};
  form.mixture.names.choice_bias = {"mlp.expert_bias", "exp_probs_b.bias"};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
