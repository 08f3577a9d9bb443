#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

using Use = IndexerForm::Use;

// Keys of the published configuration with one value that this family has.
void RequirePublishedM3(ConfigReader& read) {
  read.Require("use_qk_norm", true);
  read.Require("qk_norm_type", "per_head");
  read.Require("use_gemma_norm", true);
  read.Require("use_routing_bias", true);
  read.Require("sparse_attention_config/use_sparse_attention", true);
  read.Require("sparse_attention_config/sparse_score_type", "max");
  read.Require("sparse_attention_config/sparse_init_block", 0.0);
  // Not published with weights.
  read.Ignore({"use_mtp", "num_mtp_modules", "mtp_transformer_layers"});
}

std::vector<Use> ReadSparseLayers(ConfigReader& read, int32_t layers) {
  std::vector<Use> uses(static_cast<size_t>(layers), Use::kNone);
  const auto set = [&](size_t i, bool sparse) { uses[i] = sparse ? Use::kOwn : Use::kNone; };
  if (read.gguf()) {
    for (size_t i = 0; i < uses.size(); ++i) {
      set(i, read.files().Find(fmt::format("blk.{}.indexer.q_proj.weight", i)) != nullptr);
    }
    return uses;
  }
  const auto kinds = read.Kinds({"layer_types", ""}, layers, "minimax_m3_sparse", "full_attention");
  constexpr ConfigKey kFreq = {"sparse_attention_config/sparse_attention_freq", ""};
  const bool listed = read.Find(kFreq) != nullptr;
  const std::vector<int64_t> freq =
      listed ? read.Integers(kFreq, layers, 0, 1) : std::vector<int64_t>(uses.size(), 0);
  for (size_t i = 0; i < uses.size(); ++i) set(i, kinds ? (*kinds)[i] : freq[i] != 0);
  return uses;
}

IndexerForm ReadBlockIndexer(ConfigReader& read, const DecoderForm& form) {
  IndexerForm indexer;
  indexer.heads = read.Small(
      {"sparse_attention_config/sparse_num_index_heads|index_n_heads", "attention.indexer.head_count"}, 1,
      kMaxHeads, 4);
  indexer.dim =
      read.Small({"sparse_attention_config/sparse_index_dim|index_head_dim", "attention.indexer.key_length"},
                 2, kernels::kMaxHeadDim, 128);
  indexer.rule.relu = false;
  indexer.rule.block = read.Small(
      {"sparse_attention_config/sparse_block_size|index_block_size", "attention.indexer.block_size"}, 2,
      kMaxContext, 128);
  indexer.rule.best =
      read.Small({"sparse_attention_config/sparse_topk_blocks|index_topk_blocks", "attention.indexer.top_k"},
                 1, kMaxContext, 16);
  indexer.rule.local_blocks = read.Small(
      {"sparse_attention_config/sparse_local_block|index_local_blocks", "attention.indexer.local_blocks"}, 0,
      kMaxContext, 1);
  indexer.rule.lists = form.decoder.kv_heads;
  if (indexer.heads != form.decoder.kv_heads) {
    read.Fail(fmt::format("{} index heads for {} KV heads: only one for each is supported", indexer.heads,
                          form.decoder.kv_heads));
  }
  indexer.layers = ReadSparseLayers(read, form.decoder.layers);
  return indexer;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadMiniMaxM3(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  RequirePublishedM3(read);
  FormQuery query{.given = {.norm = NormKind::kZeroCenteredRms, .norm_eps = 1e-6F, .clamp = {.limit = 7}},
                  .rope = {.default_theta = 5e6, .partial_allowed = true}};
  if (!read.gguf()) {
    query.given.head_dim = 128;
    const int32_t head = read.Small({"head_dim", ""}, 2, kMaxWidth, 128);
    const int32_t rotated = read.Small({"rotary_dim", ""}, 2, head, std::min(head, 64));
    query.rope.default_partial = static_cast<double>(rotated) / head;
  }
  DecoderForm form = ReadMixtureForm(read, query,
                                     {.score = MixtureConfig::Score::kSigmoid,
                                      .normalize = true,
                                      .scale = 2,
                                      .shared = 1,
                                      .as_stored = true});
  // Whatever hidden_act says: transformers writes silu in its place.
  form.decoder.clamp = {.limit = static_cast<float>(read.Positive({"swiglu_limit", ""}, 1e6, 7)),
                        .slope = static_cast<float>(read.Positive({"swiglu_alpha", ""}, 1e6, 1.702))};
  MixtureConfig& mixture = form.mixture.config;
  mixture.clamp = form.decoder.clamp;
  mixture.shared_width =
      read.Small({"shared_intermediate_size", ""}, 1, kMaxWidth, std::max(mixture.shared_width, 1));
  form.feed_forward = read.Small({"dense_intermediate_size", "feed_forward_length"}, 1, kMaxWidth, 12288);
  form.qk_norm = QkNorm::kHeads;
  form.indexer = ReadBlockIndexer(read, form);
  MixtureNames& names = form.mixture.names;
  names.router = {"block_sparse_moe.gate", "ffn_gate_inp"};
  names.choice_bias = {"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"};
  names.experts = kMixtralExperts;
  names.shared = {.gate = {"block_sparse_moe.shared_experts.gate_proj", "ffn_gate_shexp"},
                  .up = {"block_sparse_moe.shared_experts.up_proj", "ffn_up_shexp"},
                  .down = {"block_sparse_moe.shared_experts.down_proj", "ffn_down_shexp"}};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
