#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"
#include "runner/models/residual_streams.h"

namespace quire::runner::models {
namespace {

StreamForm ReadHyV4Streams(ConfigReader& read, const DecoderConfig& decoder) {
  StreamForm form{.shape = {.form = StreamShape::Form::kIndependent,
                            .hidden = decoder.hidden,
                            .norm_eps = decoder.norm_eps},
                  .attention = {.fn = {"hc_attn_layer.hc_pre.hc_fn", "hc_attn_fn.weight"},
                                .scale = {"hc_attn_layer.hc_pre.hc_scale", "hc_attn_scale.weight"},
                                .base = {"hc_attn_layer.hc_pre.hc_base", "hc_attn_base.weight"}},
                  .feed_forward = {.fn = {"hc_mlp_layer.hc_pre.hc_fn", "hc_ffn_fn.weight"},
                                   .scale = {"hc_mlp_layer.hc_pre.hc_scale", "hc_ffn_scale.weight"},
                                   .base = {"hc_mlp_layer.hc_pre.hc_base", "hc_ffn_base.weight"}},
                  .end = {.fn = {"hc_head.hc_head_fn", "output_hc_fn.weight"},
                          .scale = {"hc_head.hc_head_scale", "output_hc_scale.weight"},
                          .base = {"hc_head.hc_head_base", "output_hc_base.weight"}}};
  ReadStreams(read, &form.shape);
  return form;
}

// One limit for all layers, in a GGUF file said for each.
float ReadRoutedLimit(ConfigReader& read, int32_t layers) {
  if (!read.gguf()) return static_cast<float>(read.Positive({"swiglu_limit", ""}, 1e6, 10));
  constexpr ConfigKey kLimits = {"", "swiglu_clamp_exp"};
  if (read.Find(kLimits) == nullptr) return 0;
  const std::vector<double> limits = read.Numbers(kLimits, static_cast<size_t>(layers), 1e6);
  if (std::ranges::any_of(limits, [&](double limit) { return limit != limits.front(); })) {
    read.Fail("swiglu_clamp_exp: only one limit for all layers is supported");
  }
  return static_cast<float>(limits.front());
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadHyV4(std::shared_ptr<const weights::ModelFiles> files) {
  using Score = MixtureConfig::Score;
  ConfigReader read(*files);
  DecoderForm form = ReadMixtureForm(
      read, {.given = {.kv_heads = -1, .head_dim = -1, .norm_eps = 1e-5F}, .rope = {.default_theta = 10000}},
      {.score = Score::kSigmoid, .scale = 2.827, .first_dense = 1, .shared = 1, .as_stored = true});
  if (form.latent->query_rank == 0) read.Fail("q_lora_rank: the indexer needs compressed queries");
  form.streams = ReadHyV4Streams(read, form.decoder);
  form.mtp_layers = 0;  // they are left out
  form.indexer = ReadIndexer(read, form, 16);
  form.indexer->layers = ReadIndexerLayers(read, form.decoder.layers, 4);
  if (form.indexer->layers.front() != IndexerForm::Use::kOwn) {
    read.Fail("the first layer has no layer before it whose indexer it could share");
  }
  form.indexer->rotated_last = form.latent->rotary;
  form.indexer->key_eps = form.decoder.norm_eps;
  for (LayerForm& layer : form.layers) layer.sinks = true;
  form.names.attention.sinks = {"self_attn.learnable_sink_param", "attn_sinks.weight"};
  form.names.latent_gate = {"self_attn.linear_gate", "attn_gate"};
  form.mixture.config.clamp = {.limit = ReadRoutedLimit(read, form.decoder.layers), .slope = 1, .shift = 0};
  // The two references rotate different pairs: transformers halves, llama.cpp neighbors.
  form.ropes[0].pairs = read.gguf() ? kernels::RopePairs::kAdjacent : kernels::RopePairs::kHalves;
  if (const auto types = read.Texts({"layer_types", ""}, form.decoder.layers)) {
    const bool indexed =
        std::ranges::all_of(*types, [](const auto& type) { return type == "indexed_attention"; });
    if (!indexed) read.Fail("layer_types: only indexed_attention is supported");
  }
  // Derived from others, or of training.
  read.Ignore({"qk_head_dim", "head_dim", "num_key_value_heads", "learnable_sink_init"});
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
