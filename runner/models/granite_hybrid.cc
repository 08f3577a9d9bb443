#include <algorithm>

#include "runner/models/families.h"
#include "runner/models/hybrid_config.h"

namespace quire::runner::models {
namespace {

void ReadGraniteLayers(ConfigReader& read, HybridForm* form) {
  if (!read.gguf()) {
    constexpr ConfigKey kTypes = {"layer_types|layers_block_type", ""};
    const auto attends = read.Kinds(kTypes, form->decoder.layers, "attention", "mamba");
    if (!attends) return read.Fail("the configuration lacks layer_types");
    for (size_t i = 0; i < attends->size(); ++i) form->layers[i].attends = (*attends)[i];
  }
  for (HybridLayer& layer : form->layers) layer.mamba = !layer.attends;
}

// GGUF says with rope.scaling.finetuned whether there are positions; its rows are permuted either way.
void ReadGraniteRope(ConfigReader& read, HybridForm* form) {
  const std::string type = read.Text({"position_embedding_type", ""}, "nope");
  const bool rotated = read.gguf() ? read.Boolean({"", "rope.scaling.finetuned"}, true) : type == "rope";
  if (!rotated && type != "nope") read.Fail("position_embedding_type is neither \"rope\" nor \"nope\"");
  RopeSpec rope = ReadRope(read, {.head_dim = form->decoder.head_dim,
                                  .default_theta = 10000,
                                  .gguf_pairs = kernels::RopePairs::kAdjacent});
  if (!rotated) std::ranges::fill(rope.frequencies, 0.0F);
  if (rotated || read.gguf()) form->rope = std::move(rope);
}

void ReadGraniteFeedForward(ConfigReader& read, HybridForm* form) {
  constexpr ConfigKey kExperts = {"num_local_experts", "expert_count"};
  constexpr ConfigKey kShared = {"shared_intermediate_size", "expert_shared_feed_forward_length"};
  const auto none = read.gguf() ? std::optional<int64_t>(0) : std::nullopt;
  const bool sparse = read.Integer(kExperts, 0, kMaxExperts, none) > 0;
  for (HybridLayer& layer : form->layers) {
    layer.feed = sparse ? HybridLayer::Feed::kExperts : HybridLayer::Feed::kMlp;
  }
  if (!sparse) {
    read.Ignore({"num_experts_per_tok", "intermediate_size"});
    form->feed_forward = read.gguf() ? ReadFeedForward(read) : read.Small(kShared, 1, kMaxWidth);
    form->names.mlp = {.gate = {"", "ffn_gate"},
                       .up = {"", "ffn_up"},
                       .down = {"shared_mlp.output_linear", "ffn_down"},
                       .gate_up = {"shared_mlp.input_linear", ""}};
    return;
  }
  // Softmax over the chosen logits is the normalized softmax over all.
  form->mixture.config = ReadMixture(read, form->decoder.layers, {.normalize = true});
  form->mixture.config.shared_width = read.Small(kShared, 0, kMaxWidth, none);
  form->mixture.names = GraniteMixtureNames();
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadGraniteHybrid(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  HybridForm form = ReadHybridForm(read, {.given = {.context = 2048, .norm_eps = 1e-6F}});
  form.mamba = ReadMamba2(read, kGraniteMambaKeys, form.decoder.hidden);
  if (read.gguf()) form.mamba.norm_groups = static_cast<int32_t>(form.mamba.shape.groups);
  form.names.final_norm = {"norm", "output_norm"};
  form.names.feed_norm = {"post_attention_layernorm", "ffn_norm"};
  ReadGraniteLayers(read, &form);
  ReadGraniteRope(read, &form);
  ReadGraniteFeedForward(read, &form);
  form.embedding_scale = ReadMultiplier(read, {"embedding_multiplier", "embedding_scale"});
  form.residual_scale = ReadMultiplier(read, {"residual_multiplier", "residual_scale"});
  form.logit_scale = 1 / ReadMultiplier(read, {"logits_scaling", "logit_scale"});
  constexpr ConfigKey kScale = {"attention_multiplier", "attention.scale"};
  if (!read.gguf() || read.Find(kScale) != nullptr) form.attention_scale = ReadMultiplier(read, kScale);
  form.attention_bias = form.attention_out_bias = ReadBias(read, "attention_bias");
  read.Require("normalization_function", "rmsnorm");
  read.Ignore({"init_method"});
  return BuildHybrid(read, std::move(files), form);
}

}  // namespace quire::runner::models
