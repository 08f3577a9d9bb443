#include <algorithm>
#include <nlohmann/json.hpp>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

// Keys of the published configuration with one value that this family has.
void RequirePublished(ConfigReader& read) {
  read.Require("use_qk_norm", true);
  read.Require("qk_norm_type", "per_layer");
  read.Require("use_routing_bias", true);
  for (const char* beta :
       {"layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta"}) {
    read.Require(beta, 1.0);
  }
  const auto* kinds = read.Find({"attn_type_list", ""});
  if (kinds != nullptr && !std::ranges::all_of(*kinds, [](const auto& kind) { return kind == 1; })) {
    read.Fail("attn_type_list: only full attention (1) is supported");
  }
  // These belong to shared experts and dense layers, which there are none of, and to MTP layers, which are
  // not published.
  read.Ignore(
      {"shared_moe_mode", "mlp_intermediate_size", "use_mtp", "num_mtp_modules", "mtp_transformer_layers"});
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadMiniMaxM2(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  RequirePublished(read);
  FormQuery query{.given = {.norm_eps = 1e-6F}, .rope = {.default_theta = 5e6, .partial_allowed = true}};
  if (!read.gguf()) {
    query.given.head_dim = 128;
    const int32_t head = read.Small({"head_dim", ""}, 2, kMaxWidth, 128);
    const int32_t rotated = read.Small({"rotary_dim", ""}, 2, head, head);
    query.rope.default_partial = static_cast<double>(rotated) / head;
  }
  DecoderForm form =
      ReadMixtureForm(read, query, {.score = MixtureConfig::Score::kSigmoid, .normalize = true});
  form.qk_norm = QkNorm::kRow;
  form.mixture.names.router = {"block_sparse_moe.gate", "ffn_gate_inp"};
  form.mixture.names.choice_bias = {"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"};
  form.mixture.names.experts = kMixtralExperts;
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
