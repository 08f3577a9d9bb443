#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadGlm4Moe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadMixtureForm(
      read, {.given = {.norm_eps = 1e-5F}, .rope = {.default_theta = 10000, .default_partial = 0.5}},
      {.score = MixtureConfig::Score::kSigmoid, .normalize = true, .first_dense = 1, .shared = 1});
  const bool head_norms = read.gguf() ? files->Find("blk.0.attn_q_norm.weight") != nullptr
                                      : read.Boolean({"use_qk_norm", ""}, false);
  if (head_norms) form.qk_norm = QkNorm::kHeads;
  form.attention_bias = ReadBias(read, "attention_bias");
  form.names.mlp_norm = {"post_attention_layernorm", "post_attention_norm"};
  return BuildDeclared(read, std::move(files), form);
}

// Solar Open: without norms of heads, whole heads rotated, experts in all layers.
api::Result<std::unique_ptr<Model>> LoadSolarOpen(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form =
      ReadMixtureForm(read,
                      {.given = {.head_dim = 128, .norm_eps = 1e-5F},
                       .rope = {.default_theta = 1e6, .partial_allowed = true}},
                      {.score = MixtureConfig::Score::kSigmoid, .normalize = true, .shared = 1});
  form.attention_bias = ReadBias(read, "attention_bias");
  read.Require("use_qk_norm", false);
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
