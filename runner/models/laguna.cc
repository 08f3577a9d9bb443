#include <nlohmann/json.hpp>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

void ReadLagunaLayers(ConfigReader& read, DecoderForm* form) {
  ReadLayerHeads(read, {"num_attention_heads_per_layer|num_attention_heads", "attention.head_count"},
                 {"num_key_value_heads", "attention.head_count_kv"}, form);
  // A GGUF file has a period whose first layer has no window.
  form->SetWindows(ReadWindows(
      read, form->decoder.layers,
      [](int32_t layer, int32_t every) { return every > 0 && layer % every != 0; }, read.gguf() ? 4 : 0,
      read.gguf() ? 0 : 512));
  form->ropes.push_back(ReadRope(read, {.head_dim = form->decoder.head_dim,
                                        .layer_type = "sliding_attention",
                                        .theta = {"", "rope.freq_base_swa"},
                                        .default_theta = 10000,
                                        .partial_allowed = true,
                                        .dimensions = {"", "rope.dimension_count_swa"},
                                        .scaled = false}));
  for (LayerForm& layer : form->layers) layer.rope = layer.window > 0 ? 1 : 0;
}

void ReadLagunaMixture(ConfigReader& read, MixtureForm* form) {
  MixtureConfig& mixture = form->config;
  read.Require("moe_apply_router_weight_on_input", false);
  if (mixture.groups != 1) read.Fail("n_group: only 1 is supported");
  constexpr ConfigKey kCap = {"moe_router_logit_softcapping", ""};
  if (const auto* cap = read.Find(kCap); cap != nullptr && *cap != 0) {
    mixture.logit_cap = static_cast<float>(read.Positive(kCap, 1e6));
  }
  mixture.shared_width =
      read.Small({"shared_expert_intermediate_size", "expert_shared_feed_forward_length"}, 1, kMaxWidth, 512);
  form->names.choice_bias = {"mlp.experts.e_score_correction_bias", "exp_probs_b.bias"};
  form->names.shared = {.gate = {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                        .up = {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                        .down = {"mlp.shared_expert.down_proj", "ffn_down_shexp"}};
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadLaguna(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const bool stated = read.gguf() || read.Says("rope_parameters");
  DecoderForm form = ReadMixtureForm(
      read,
      {.given = {.heads = -1, .kv_heads = -1, .head_dim = read.gguf() ? 0 : 128, .norm_eps = 1e-6F},
       .rope = {.layer_type = "full_attention",
                .default_theta = 500000,
                .default_partial = stated ? 1 : 0.5,
                .partial_allowed = true}},
      {.score = MixtureConfig::Score::kSigmoid,
       .scale = read.Positive({"moe_routed_scaling_factor", ""}, 1e6, 1),
       .first_dense = 1,
       .as_stored = true});
  ReadLagunaLayers(read, &form);
  ReadLagunaMixture(read, &form.mixture);
  form.qk_norm = QkNorm::kHeads;
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.output_gate = OutputGate::Kind::kSoftplus;
  // One factor per head or per element: as the matrix has it.
  read.Ignore({"gating", "gating_types"});
  form.names.attention.gate = {"self_attn.g_proj", "attn_gate"};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
