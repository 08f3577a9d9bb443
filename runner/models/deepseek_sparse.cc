#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

using Use = IndexerForm::Use;

std::vector<Use> UsesOf(const std::vector<bool>& own) {
  std::vector<Use> uses(own.size());
  std::ranges::transform(own, uses.begin(), [](bool one) { return one ? Use::kOwn : Use::kShared; });
  return uses;
}

struct SparseDefaults {
  float norm_eps;
  int32_t groups, groups_kept;
  int32_t index_heads;
};

DecoderForm ReadSparseForm(ConfigReader& read, const SparseDefaults& defaults) {
  DecoderForm form =
      ReadMixtureForm(read, {.given = {.kv_heads = -1, .head_dim = -1, .norm_eps = defaults.norm_eps}},
                      {.score = MixtureConfig::Score::kSigmoid,
                       .normalize = true,
                       .scale = 2.5,
                       .first_dense = 3,
                       .shared = 1,
                       .groups = defaults.groups,
                       .groups_kept = defaults.groups_kept,
                       .as_stored = true});
  // What latent attention derives from other keys, and how others distribute experts.
  read.Ignore({"qk_head_dim", "head_dim", "num_key_value_heads", "ep_size"});
  // All layers choose what they see.
  const auto* const kinds = read.Find({"layer_types", ""});
  const auto chooses = [](const auto& kind) { return kind == "indexed_attention"; };
  if (kinds != nullptr && !(kinds->is_array() && std::ranges::all_of(*kinds, chooses))) {
    read.Fail("layer_types: only indexed_attention is supported for this family");
  }
  form.mlp_bias = ReadBias(read, "mlp_bias");
  form.ropes[0].pairs = kernels::RopePairs::kAdjacent;
  form.indexer = ReadIndexer(read, form, defaults.index_heads);
  return form;
}

}  // namespace

std::vector<Use> ReadIndexerLayers(ConfigReader& read, int32_t layers, int32_t default_freq) {
  const auto count = static_cast<size_t>(layers);
  if (read.gguf()) {
    // With entries for MTP layers behind the others.
    const auto* const stored = read.Find({"", "attention.indexer.types"});
    std::vector<bool> own(count, true);
    if (stored == nullptr) return UsesOf(own);
    if (!stored->is_array() || stored->size() < count) {
      read.Fail("attention.indexer.types has fewer entries than there are layers");
      return UsesOf(own);
    }
    for (size_t i = 0; i < count; ++i) own[i] = (*stored)[i].is_boolean() ? (*stored)[i].get<bool>() : true;
    return UsesOf(own);
  }
  read.Ignore({"index_topk_freq", "index_skip_topk_offset"});  // without a meaning beside a list
  if (const auto listed = read.Kinds({"indexer_types", ""}, layers, "full", "shared")) {
    read.Ignore({"index_topk_pattern"});
    return UsesOf(*listed);
  }
  constexpr ConfigKey kPattern = {"index_topk_pattern", ""};
  const auto* const pattern = read.Find(kPattern);
  if (pattern != nullptr && pattern->is_array()) {
    return UsesOf(read.Kinds(kPattern, layers, "full", "shared").value_or(std::vector<bool>(count, true)));
  }
  std::vector<bool> own(count);
  if (pattern != nullptr) {
    const std::string letters = read.Text(kPattern, "");
    if (letters.size() != count || letters.find_first_not_of("FS") != std::string::npos) {
      read.Fail("index_topk_pattern is not one letter F or S for each layer");
      return UsesOf(own);
    }
    for (size_t i = 0; i < count; ++i) own[i] = letters[i] == 'F';
    return UsesOf(own);
  }
  const int64_t freq =
      std::max<int64_t>(1, read.Integer({"index_topk_freq", ""}, 0, kMaxLayers, default_freq));
  const int64_t offset = read.Integer({"index_skip_topk_offset", ""}, 0, kMaxLayers, 2);
  for (size_t i = 0; i < count; ++i) {
    own[i] = std::max<int64_t>(static_cast<int64_t>(i) - offset + 1, 0) % freq == 0;
  }
  return UsesOf(own);
}

api::Result<std::unique_ptr<Model>> LoadDeepSeekV32(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form =
      ReadSparseForm(read, {.norm_eps = 1e-6F, .groups = 8, .groups_kept = 4, .index_heads = 64});
  // The same angles, of channels in two halves.
  form.ropes.push_back(form.ropes[0]);
  form.ropes[1].pairs = kernels::RopePairs::kHalves;
  form.indexer->rope = 1;
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadGlmMoeDsa(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form =
      ReadSparseForm(read, {.norm_eps = 1e-5F, .groups = 1, .groups_kept = 1, .index_heads = 32});
  read.Require("rope_interleave", true);
  read.Require("indexer_rope_interleave", true);
  form.indexer->layers = ReadIndexerLayers(read, form.decoder.layers, 1);
  if (form.indexer->layers.front() != Use::kOwn) {
    read.Fail("the first layer has no layer before it whose indexer it could share");
  }
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
