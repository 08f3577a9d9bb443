#include <cmath>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

// GGUF does not say it: the head's, but in the largest of each generation the share of the hidden size.
float ReadScale(ConfigReader& read, const DecoderConfig& decoder, int32_t layers_of_largest) {
  double size = read.Positive({"query_pre_attn_scalar", ""}, kMaxWidth, read.gguf() ? decoder.head_dim : 256);
  if (read.gguf() && decoder.layers == layers_of_largest) {
    size = static_cast<double>(decoder.hidden) / decoder.heads;
  }
  return static_cast<float>(1 / std::sqrt(size));
}

void ReadGemma(ConfigReader& read, DecoderForm* form) {
  form->norms = NormPlaces::kAround;
  form->names.mlp_norm = {"pre_feedforward_layernorm", "ffn_norm"};
  form->embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(form->decoder.hidden)));
  form->attention_bias = form->out_bias =
      read.Boolean({"attention_bias", ""}, false) ? Bias::kPresent : Bias::kAbsent;
  read.Require("use_bidirectional_attention", false);
}

// 0 where the configuration has null, or nothing and nothing is given.
float ReadCap(ConfigReader& read, ConfigKey key, double given) {
  if (read.Find(key) == nullptr && (given == 0 || read.SaysNull(key.hugging_face))) return 0;
  return static_cast<float>(read.Positive(key, 1e6, given));
}

constexpr ConfigKey kScoreCap = {"attn_logit_softcapping", "attn_logit_softcapping"};
constexpr ConfigKey kLogitCap = {"final_logit_softcapping", "final_logit_softcapping"};

}  // namespace

api::Result<std::unique_ptr<Model>> LoadGemma(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, {.given = {.head_dim = read.gguf() ? 0 : 256,
                                                      .context = 8192,
                                                      .norm = NormKind::kZeroCenteredRms,
                                                      .norm_eps = 1e-6F,
                                                      .activation = Activation::kGelu},
                                            .tied = TiedByDefault::kYes});
  ReadGemma(read, &form);
  form.norms = NormPlaces::kBefore;
  form.names.mlp_norm = BlockNames().mlp_norm;
  return BuildDeclared(read, std::move(files), form);
}

// VaultGemma is Gemma 2 without the norms behind attention and feed-forward.
api::Result<std::unique_ptr<Model>> LoadGemma2(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, {.given = {.context = 8192,
                                                      .norm = NormKind::kZeroCenteredRms,
                                                      .norm_eps = 1e-6F,
                                                      .activation = Activation::kGelu},
                                            .tied = TiedByDefault::kYes,
                                            .slides = [](int32_t layer, int32_t) { return layer % 2 == 0; },
                                            .given_window = 4096});
  ReadSlidingRope(read, FormQuery().rope, &form);
  ReadGemma(read, &form);
  if (files->architecture() == "vaultgemma") form.norms = NormPlaces::kBefore;
  form.attention_scale = ReadScale(read, form.decoder, 46);
  form.score_cap = ReadCap(read, kScoreCap, 50);
  form.logit_cap = ReadCap(read, kLogitCap, 30);
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadGemma3(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  // Defaults that the published multimodal configurations omit.
  DecoderConfig given{.context = 131072,
                      .norm = NormKind::kZeroCenteredRms,
                      .norm_eps = 1e-6F,
                      .activation = Activation::kGelu};
  if (!read.gguf()) {
    given.vocab = 262208;
    given.heads = 8;
    given.kv_heads = 4;
    given.head_dim = 256;
  }
  const int32_t period = read.Small({"sliding_window_pattern|_sliding_window_pattern", ""}, 1, kMaxLayers, 6);
  DecoderForm form =
      ReadDecoderForm(read, {.given = given,
                             .tied = TiedByDefault::kYes,
                             .rope = {.layer_type = "full_attention", .default_theta = 1e6},
                             .slides = [](int32_t layer, int32_t every) { return (layer + 1) % every != 0; },
                             .period = period,
                             .given_window = 4096});
  form.ropes.push_back(ReadRope(read, {.head_dim = form.decoder.head_dim,
                                       .layer_type = "sliding_attention",
                                       .theta = {"rope_local_base_freq", "rope.freq_base_swa"},
                                       .default_theta = 10000,
                                       .scaled = false}));
  for (LayerForm& layer : form.layers) layer.rope = layer.window > 0 ? 1 : 0;
  ReadGemma(read, &form);
  form.attention_scale = ReadScale(read, form.decoder, 62);
  form.qk_norm = QkNorm::kHeads;
  form.images_both_ways = true;
  // No published model has this, and transformers does not compute it.
  if (read.Find({"attn_logit_softcapping", ""}) != nullptr) {
    read.Fail("attn_logit_softcapping is not supported for this family");
  }
  form.score_cap = ReadCap(read, {"", kScoreCap.gguf}, 0);
  form.logit_cap = ReadCap(read, kLogitCap, 0);
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
