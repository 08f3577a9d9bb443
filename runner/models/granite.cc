#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

void ReadMultipliers(ConfigReader& read, DecoderForm* form) {
  form->embedding_scale = ReadMultiplier(read, {"embedding_multiplier", "embedding_scale"});
  form->residual_scale = ReadMultiplier(read, {"residual_multiplier", "residual_scale"});
  form->attention_scale = ReadMultiplier(read, {"attention_multiplier", "attention.scale"});
  form->logit_scale = 1 / ReadMultiplier(read, {"logits_scaling", "logit_scale"});
  form->attention_bias = form->out_bias = ReadBias(read, "attention_bias");
}

constexpr FormQuery kGranite = {
    .given = {.context = 2048, .norm_eps = 1e-6F},
    .rope = {.default_theta = 10000, .gguf_pairs = kernels::RopePairs::kAdjacent}};

}  // namespace

api::Result<std::unique_ptr<Model>> LoadGranite(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, kGranite);
  ReadMultipliers(read, &form);
  form.mlp_bias = ReadBias(read, "mlp_bias");
  return BuildDeclared(read, std::move(files), form);
}

// HyperCLOVA X: with norms behind attention and feed-forward too, and logits that are multiplied.
api::Result<std::unique_ptr<Model>> LoadHyperClovaX(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, kGranite);
  ReadMultipliers(read, &form);
  form.logit_scale = ReadMultiplier(read, {"logits_scaling", ""});
  if (read.Find({"attention_multiplier", ""}) == nullptr) form.attention_scale = 0;
  form.mlp_bias = ReadBias(read, "mlp_bias");
  if (read.Boolean({"use_post_norm", ""}, true)) form.norms = NormPlaces::kAround;
  form.names.mlp_norm = {"post_attention_layernorm", ""};
  form.names.post_attention_norm = {"post_norm1", ""};
  form.names.post_mlp_norm = {"post_norm2", ""};
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadGraniteMoe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadMixtureForm(read, kGranite, {.normalize = true});
  ReadMultipliers(read, &form);
  form.mixture.config.shared_width =
      read.Small({"shared_intermediate_size", "expert_shared_feed_forward_length"}, 0, kMaxWidth, 0);
  form.mixture.names = GraniteMixtureNames();
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
