// Decoders whose block is Llama's but for its parts: h += attention(norm(h)); h += feed_forward(norm(h)). The
// attention is grouped-query or latent, the feed-forward layer of some layers a mixture of experts.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "api/base/error.h"
#include "runner/models/decoder.h"
#include "runner/models/latent_attention.h"
#include "runner/models/mixture_config.h"

namespace quire::runner::models {

// The properties of a family.
struct MoeDecoderConfig {
  DecoderConfig decoder = {};
  RopeSpec rope = {};
  std::vector<int32_t> windows = {};                // [layers], 0 = full attention
  std::optional<LatentAttentionShape> latent = {};  // in place of grouped-query attention
  bool head_norms = false;                          // of each query and key head
  bool sinks = false;                               // a score per head beside those of the keys
  Bias attention_bias = Bias::kAbsent;              // of q, k and v
  Bias out_bias = Bias::kAbsent;
  int32_t feed_forward = 0;  // of the layers without experts
  MixtureConfig mixture = {};
  MixtureNames names = {};
  TensorName mlp_norm = {"post_attention_layernorm", "ffn_norm"};
  // Binds the experts of a layer that no file stores as BindExperts() has it; or null.
  void (*bind_experts)(const TensorScope& scope, int64_t hidden, const MixtureConfig& config,
                       MixtureOfExperts* moe) = nullptr;
};

// The parts that configurations of all these families share: decoder and mixture. The layers of a GGUF file that
// predict further tokens are left out.
MoeDecoderConfig ReadMoeDecoder(ConfigReader& read, const DecoderConfig& given,
                                const MixtureDefaults& defaults);

api::Result<std::unique_ptr<Model>> BuildMoeDecoder(ConfigReader& read,
                                                    std::shared_ptr<const weights::ModelFiles> files,
                                                    const MoeDecoderConfig& config);

}  // namespace quire::runner::models
