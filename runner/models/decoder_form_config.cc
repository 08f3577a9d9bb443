#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runner/kernels/portable_math.h"
#include "runner/models/decoder_form.h"

namespace quire::runner::models {

void DecoderForm::SetWindows(const std::vector<int32_t>& windows) {
  layers.resize(windows.size());
  for (size_t i = 0; i < windows.size(); ++i) layers[i].window = windows[i];
}

DecoderForm ReadDecoderForm(ConfigReader& read, const FormQuery& query) {
  DecoderForm form{.decoder = ReadDecoderConfig(read, query.given, query.tied), .feed_forward = 0};
  form.feed_forward = ReadFeedForward(read, query.given_feed_forward * form.decoder.hidden);
  RopeQuery rope = query.rope;
  rope.head_dim = form.decoder.head_dim;
  if (query.given.head_dim < 0) {
    const int32_t share = form.decoder.hidden / form.decoder.heads;
    form.latent = ReadLatentAttention(read, form.decoder.heads, query.value_is_share ? share : 0);
    rope.head_dim = form.latent->rotary;
  }
  if (rope.default_theta >= 0) form.ropes.push_back(ReadRope(read, rope));
  form.SetWindows(ReadWindows(read, form.decoder.layers, query.slides, query.period, query.given_window));
  for (LayerForm& layer : form.layers) layer.rope = form.ropes.empty() ? LayerForm::kNoRope : 0;
  return form;
}

DecoderForm ReadMixtureForm(ConfigReader& read, const FormQuery& query, const MixtureDefaults& defaults) {
  DecoderForm form{.decoder = ReadDecoderConfig(read, query.given, query.tied)};
  const int32_t others = read.gguf() ? form.decoder.layers - 1 : kMaxLayers;
  form.mtp_layers = read.Small({"num_nextn_predict_layers", "nextn_predict_layers"}, 0, others, 0);
  if (read.gguf()) form.decoder.layers -= form.mtp_layers;
  form.layers.resize(static_cast<size_t>(form.decoder.layers));
  form.mixture.config = ReadMixture(read, form.decoder.layers, defaults);
  read.Ignore({"intermediate_size"});  // of dense layers, which there need not be
  if (std::ranges::count(form.mixture.config.sparse, false) != 0) form.feed_forward = ReadFeedForward(read);
  RopeQuery rope = query.rope;
  rope.head_dim = form.decoder.head_dim;
  if (query.given.head_dim < 0) {
    form.latent = ReadLatentAttention(read, form.decoder.heads);
    rope.head_dim = form.latent->rotary;
  }
  form.ropes.push_back(ReadRope(read, rope));
  return form;
}

IndexerForm ReadIndexer(ConfigReader& read, const DecoderForm& form, int32_t default_heads) {
  IndexerForm indexer;
  indexer.heads = read.Small({"index_n_heads", "attention.indexer.head_count"}, 1, kMaxHeads, default_heads);
  constexpr ConfigKey kDim = {"index_head_dim", "attention.indexer.key_length"};
  indexer.dim = read.Small(kDim, 2, kernels::kMaxHeadDim, 128);
  indexer.rule.best = read.Small({"index_topk", "attention.indexer.top_k"}, 1, kMaxContext, 2048);
  indexer.rule.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(indexer.dim)));
  indexer.layers.assign(static_cast<size_t>(form.decoder.layers), IndexerForm::Use::kOwn);
  if (form.latent && form.latent->query_rank == 0) {
    read.Fail("q_lora_rank is 0: an indexer needs compressed queries");
  }
  if (form.latent && indexer.dim < form.latent->rotary) {
    read.Fail(fmt::format("{} is {}, less than the {} channels that are rotated", read.Name(kDim),
                          indexer.dim, form.latent->rotary));
  }
  return indexer;
}

void ReadLayerHeads(ConfigReader& read, ConfigKey heads, ConfigKey kv_heads, DecoderForm* form) {
  DecoderConfig& decoder = form->decoder;
  const int32_t stored = decoder.layers + (read.gguf() ? form->mtp_layers : 0);
  const std::vector<int64_t> queries = read.Integers(heads, stored, 1, kMaxHeads);
  const std::vector<int64_t> keys = read.Integers(kv_heads, stored, 1, kMaxHeads);
  for (size_t i = 0; i < form->layers.size(); ++i) {
    LayerForm& layer = form->layers[i];
    layer.heads = static_cast<int32_t>(queries[i]);
    layer.kv_heads = static_cast<int32_t>(keys[i]);
    CheckHeads(read, layer.heads, layer.kv_heads, decoder.head_dim);
  }
  decoder.heads = static_cast<int32_t>(queries[0]);
  decoder.kv_heads = static_cast<int32_t>(keys[0]);
}

QueryGrowth ReadQueryGrowth(ConfigReader& read, std::string_view gguf_context) {
  // Said twice.
  read.Ignore({"rope_parameters/max_position_embeddings", "rope_scaling/max_position_embeddings"});
  constexpr ConfigKey kBeta = {"rope_parameters/llama_4_scaling_beta|rope_scaling/llama_4_scaling_beta",
                               "attention.temperature_scale"};
  const auto* const beta = read.Find(kBeta);
  if (beta == nullptr || *beta == 0) return {};
  return {.beta = static_cast<float>(read.Positive(kBeta, 1e3)),
          .context = read.Integer({"rope_parameters/original_max_position_embeddings|"
                                   "rope_scaling/original_max_position_embeddings",
                                   gguf_context},
                                  1, kMaxContext)};
}

void ReadSlidingRope(ConfigReader& read, RopeQuery query, DecoderForm* form) {
  query.theta = {"", "rope.freq_base_swa"};
  if (read.Find(query.theta) == nullptr) return;
  query.head_dim = form->decoder.head_dim;
  form->ropes.push_back(ReadRope(read, query));
  for (LayerForm& layer : form->layers) {
    if (layer.window > 0) layer.rope = static_cast<int32_t>(form->ropes.size()) - 1;
  }
}

kernels::XieluShape MakeXielu(float alpha_p, float alpha_n, float beta, float eps) {
  return {.positive = kernels::Softplus(alpha_p),
          .negative = beta + kernels::Softplus(alpha_n),
          .beta = beta,
          .eps = eps};
}

Bias ReadBias(ConfigReader& read, const char* key, bool fallback) {
  if (read.gguf()) return Bias::kIfStored;
  return read.Boolean({key, ""}, fallback) ? Bias::kPresent : Bias::kAbsent;
}

}  // namespace quire::runner::models
