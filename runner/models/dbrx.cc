#include <nlohmann/json.hpp>
#include <string>

#include "runner/kernels/matmul.h"
#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

// A checkpoint has the experts' rows one after the other, of the last matrix [width, hidden].
void BindDbrxExperts(const TensorScope& scope, int64_t hidden, const MixtureConfig& config,
                     MixtureOfExperts* moe) {
  const int64_t experts = config.experts, width = config.width;
  if (scope.gguf()) return BindExperts(scope, {}, experts, hidden, width, moe);
  constexpr TensorName kDown = {"ffn.experts.mlp.w2", ""};
  const kernels::Matrix gate = scope.Rows({"ffn.experts.mlp.w1", ""}, experts * width, hidden);
  const kernels::Matrix up = scope.Rows({"ffn.experts.mlp.v1", ""}, experts * width, hidden);
  const kernels::Matrix down = scope.Rows(kDown, experts * width, hidden);
  for (int64_t e = 0; e < experts && !scope.failed(); ++e) {
    const int64_t begin = e * width, end = begin + width;
    moe->gate.push_back(scope.InPanels(kernels::RowsOf(gate, begin, end), WeightUse::kExpert));
    moe->up.push_back(scope.InPanels(kernels::RowsOf(up, begin, end), WeightUse::kExpert));
    moe->down.push_back(scope.ColumnsOf(kDown, kernels::RowsOf(down, begin, end), 0, hidden));
  }
  moe->expert_panels = scope.expert_panels();
  FinishExperts(scope, hidden, width, moe);
}

DecoderConfig ReadDbrxShape(ConfigReader& read) {
  DecoderConfig given{.norm = NormKind::kLayer, .norm_eps = 1e-5F};
  if (read.gguf()) return given;
  given.hidden = read.Small({"d_model", ""}, 1, kMaxWidth, 2048);
  given.heads = read.Small({"n_heads", ""}, 1, kMaxHeads, 16);
  given.layers = read.Small({"n_layers", ""}, 1, kMaxLayers, 24);
  given.context = read.Small({"max_seq_len", ""}, 1, kMaxContext, 2048);
  given.kv_heads = read.Small({"attn_config/kv_n_heads", ""}, 1, kMaxHeads, 1);
  return given;
}

MixtureConfig ReadDbrxMixture(ConfigReader& read, int32_t layers) {
  MixtureConfig mixture;
  mixture.experts = read.Small({"ffn_config/moe_num_experts", "expert_count"}, 1, kMaxExperts, 4);
  mixture.chosen = read.Small({"ffn_config/moe_top_k", "expert_used_count"}, 1, mixture.experts, 1);
  mixture.width = read.Small({"ffn_config/ffn_hidden_size", "feed_forward_length"}, 1, kMaxWidth, 3584);
  mixture.sparse.assign(static_cast<size_t>(layers), true);
  const auto* const config = read.FindOrNull("ffn_config");
  const bool object = config != nullptr && config->is_object();
  constexpr const char* kNormalize = "moe_normalize_expert_weights";
  mixture.normalize = !object || !config->contains(kNormalize) || !config->at(kNormalize).is_null();
  read.Require(std::string("ffn_config/") + kNormalize, 1.0);
  read.Require("ffn_config/ffn_act_fn/name", "silu");
  read.Ignore({"ffn_config/hidden_size", "ffn_config/moe_loss_weight", "ffn_config/moe_jitter_eps",
               "ffn_config/model_type", "attn_config/model_type", "attn_config/attn_pdrop"});
  return mixture;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadDbrx(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form{.decoder = ReadDecoderConfig(read, ReadDbrxShape(read))};
  form.layers.resize(static_cast<size_t>(form.decoder.layers));
  form.ropes.push_back(ReadRope(read, {.head_dim = form.decoder.head_dim,
                                       .theta = {"rope_theta|attn_config/rope_theta", "rope.freq_base"},
                                       .default_theta = 10000}));
  constexpr ConfigKey kClip = {"attn_config/clip_qkv", "attention.clamp_kqv"};
  if (read.Find(kClip) != nullptr) form.clip_qkv = static_cast<float>(read.Positive(kClip, 1e6));
  form.mixture.config = ReadDbrxMixture(read, form.decoder.layers);
  form.mixture.names.router = {"ffn.router.layer", "ffn_gate_inp"};
  form.mixture.bind_experts = BindDbrxExperts;
  form.names = {.layers = "blocks",
                .embedding = {"wte", "token_embd"},
                .attention_norm = {"norm_attn_norm.norm_1", "attn_norm"},
                .mlp_norm = {"norm_attn_norm.norm_2", "attn_output_norm"},
                .attention = {.out = {"norm_attn_norm.attn.out_proj", "attn_output"},
                              .qkv = {"norm_attn_norm.attn.Wqkv", "attn_qkv"}},
                .final_norm = {"norm_f", "output_norm"}};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
