#include "runner/models/mixture_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace quire::runner::models {
namespace {

constexpr int64_t kGgufSoftmax = 1, kGgufSigmoid = 2, kGgufSqrtSoftplus = 4;

// DeepSeek V3's rules, with a bias of the choice, come with these scores.
bool IsBiased(MixtureConfig::Score score) {
  return score == MixtureConfig::Score::kSigmoid || score == MixtureConfig::Score::kSqrtSoftplus;
}

MixtureConfig::Score ReadScore(ConfigReader& read, MixtureConfig::Score fallback) {
  using Score = MixtureConfig::Score;
  struct Known {
    Score score;
    std::string_view name;
    int64_t gguf;
  };
  constexpr Known kKnown[] = {{Score::kSoftmax, "softmax", kGgufSoftmax},
                              {Score::kSigmoid, "sigmoid", kGgufSigmoid},
                              {Score::kSigmoid, "noaux_tc", kGgufSigmoid},  // dots.llm1's name for both
                              {Score::kSqrtSoftplus, "sqrtsoftplus", kGgufSqrtSoftplus}};
  constexpr ConfigKey kGating = {"", "expert_gating_func"};
  const int64_t number = read.Integer(kGating, 0, 255, 0);
  const std::string name = read.Text({"scoring_func|moe_router_activation_func", ""}, "");
  if (number == 0 && name.empty()) return fallback;
  for (const Known& known : kKnown) {
    if (read.gguf() ? known.gguf == number : known.name == name) return known.score;
  }
  if (read.gguf()) {
    read.Fail(fmt::format("{} is {}, which is none of softmax (1), sigmoid (2) and sqrt(softplus) (4)",
                          read.Name(kGating), number));
  } else {
    read.Fail(fmt::format("scoring_func \"{}\" is not supported", name.substr(0, 60)));
  }
  return fallback;
}

void ReadGroups(ConfigReader& read, const MixtureDefaults& defaults, MixtureConfig* config) {
  // DeepSeek's name for the rule. V3 biases the choice and rates a group by its two best; V2 by its best.
  const bool biased = IsBiased(config->score);
  const std::string method =
      read.Text({"topk_method", ""}, biased                            ? "noaux_tc"
                                     : defaults.greedy && !read.gguf() ? "greedy"
                                                                       : "group_limited_greedy");
  if (method != "greedy" && method != "group_limited_greedy" && method != "noaux_tc") {
    read.Fail(fmt::format("topk_method \"{}\" is not supported", method.substr(0, 60)));
  }
  config->choice_bias = read.gguf() ? config->choice_bias : method == "noaux_tc" && biased;
  if (method == "noaux_tc" && !biased) read.Fail("topk_method noaux_tc needs scoring_func sigmoid");
  if (method == "greedy") return read.Ignore({"n_group", "topk_group"});
  constexpr ConfigKey kGroups = {"n_group|num_expert_group", "expert_group_count"};
  config->groups =
      read.Small(kGroups, 0, std::min(config->experts, static_cast<int32_t>(kernels::kExpertGroupsMax)),
                 read.gguf() ? 1 : std::min(defaults.groups, config->experts));
  config->groups = std::max(config->groups, 1);
  config->groups_kept =
      read.Small({"topk_group", "expert_group_used_count"}, 0, config->groups,
                 read.gguf() ? config->groups : std::min(defaults.groups_kept, config->groups));
  if (config->groups_kept == 0) config->groups_kept = config->groups;
  config->group_best = biased ? 2 : 1;
  if (config->experts % config->groups != 0 ||
      config->experts / config->groups * config->groups_kept < config->chosen) {
    read.Fail(fmt::format("{} is {}: {} experts cannot be chosen from {} of {} groups", read.Name(kGroups),
                          config->groups, config->chosen, config->groups_kept, config->groups));
  }
}

bool IsStoredSparse(ConfigReader& read, size_t layer) {
  return read.files().Find(fmt::format("blk.{}.ffn_gate_inp.weight", layer)) != nullptr;
}

std::vector<bool> ReadSparse(ConfigReader& read, int32_t layers, int32_t first_dense) {
  const int32_t first = read.Small({"first_k_dense_replace", "leading_dense_block_count"}, 0, kMaxLayers,
                                   read.gguf() ? 0 : first_dense);
  // One number for all layers, or one for each.
  constexpr ConfigKey kEvery = {"moe_layer_freq", ""};
  const auto* const freq = read.Find(kEvery);
  const bool of_layers = freq != nullptr && freq->is_array();
  const int32_t every = of_layers ? 1 : read.Small(kEvery, 1, kMaxLayers, 1);
  const int32_t step = read.Small({"decoder_sparse_step", ""}, 1, kMaxLayers, 1);
  if (const auto listed = read.Kinds({"mlp_layer_types", ""}, layers, "sparse", "dense")) return *listed;
  std::vector<bool> sparse(static_cast<size_t>(layers));
  if (of_layers) {
    const std::vector<int64_t> listed = read.Integers(kEvery, layers, 0, 1);
    for (size_t i = 0; i < listed.size() && i < sparse.size(); ++i) sparse[i] = listed[i] != 0;
    return sparse;
  }
  for (int32_t i = 0; i < layers; ++i) {
    sparse[static_cast<size_t>(i)] = i >= first && i % every == 0 && (i + 1) % step == 0;
  }
  const auto* dense = read.Find({"mlp_only_layers", ""});
  if (dense == nullptr) return sparse;
  if (!dense->is_array()) read.Fail("mlp_only_layers is not a list");
  for (const auto& entry : *dense) {
    const int64_t layer = ConfigReader::WholeNumber(entry).value_or(-1);
    if (layer >= 0 && layer < layers) {
      sparse[static_cast<size_t>(layer)] = false;
    } else {
      read.Fail("mlp_only_layers must contain layer numbers");
    }
  }
  return sparse;
}

void ReadExpertSizes(ConfigReader& read, const MixtureDefaults& defaults, MixtureConfig* config) {
  if (defaults.sizes != nullptr) {
    config->chosen = defaults.sizes->chosen;
    config->width = defaults.sizes->width;
    if (config->chosen > config->experts) read.Fail("more experts are chosen than there are");
    return;
  }
  config->chosen = read.Small({"num_experts_per_tok|num_experts_per_token|moe_k", "expert_used_count"}, 1,
                              config->experts);
  config->width =
      read.Small({"moe_intermediate_size|intermediate_size",
                  read.Find({"", "expert_feed_forward_length"}) != nullptr ? "expert_feed_forward_length"
                                                                           : "feed_forward_length"},
                 1, kMaxWidth);
}

}  // namespace

MixtureConfig ReadMixture(ConfigReader& read, int32_t layers, const MixtureDefaults& defaults) {
  MixtureConfig config;
  config.experts = read.Small(
      {"num_experts|num_local_experts|n_routed_experts|moe_num_experts", "expert_count"}, 1, kMaxExperts);
  ReadExpertSizes(read, defaults, &config);
  config.score = ReadScore(read, defaults.score);
  config.normalize =
      read.Boolean({"norm_topk_prob|moe_renormalize", "expert_weights_norm"}, defaults.normalize);
  if (IsBiased(config.score)) config.normalize_eps = 1e-20F;
  const double scale =
      read.Positive({"routed_scaling_factor", "expert_weights_scale"}, 1e6, read.gguf() ? 1 : defaults.scale);
  config.scale = static_cast<float>(scale);
  const int64_t shared =
      read.Integer({"n_shared_experts|num_shared_experts|moe_num_shared_experts", "expert_shared_count"}, 0,
                   kMaxExperts, read.gguf() ? 0 : defaults.shared);
  if (shared * config.width > kMaxWidth) read.Fail("the shared experts are too wide");
  config.shared_width = static_cast<int32_t>(std::min<int64_t>(shared * config.width, kMaxWidth));
  config.sparse = defaults.all_sparse ? std::vector<bool>(static_cast<size_t>(layers), true)
                                      : ReadSparse(read, layers, defaults.first_dense);
  if (read.gguf()) {
    for (size_t i = 0; i < config.sparse.size(); ++i) {
      if (defaults.as_stored) config.sparse[i] = IsStoredSparse(read, i);
      const bool stored = read.files().Find(fmt::format("blk.{}.exp_probs_b.bias", i)) != nullptr;
      config.choice_bias = config.choice_bias || stored;
    }
  }
  ReadGroups(read, defaults, &config);
  return config;
}

MixtureNames GraniteMixtureNames() {
  MixtureNames names;
  names.router = {"block_sparse_moe.router.layer", "ffn_gate_inp"};
  names.experts = {.gate = "block_sparse_moe.experts.{}.gate_proj",
                   .up = "block_sparse_moe.experts.{}.up_proj",
                   .down = "block_sparse_moe.experts.{}.down_proj",
                   .gate_up_stacked = "block_sparse_moe.input_linear.weight",
                   .down_stacked = "block_sparse_moe.output_linear.weight"};
  names.shared = {.gate = {"", "ffn_gate_shexp"},
                  .up = {"", "ffn_up_shexp"},
                  .down = {"shared_mlp.output_linear", "ffn_down_shexp"},
                  .gate_up = {"shared_mlp.input_linear", ""}};
  return names;
}

MixtureOfExperts BindRouter(const TensorScope& scope, int64_t hidden, const MixtureConfig& config,
                            const MixtureNames& names) {
  MixtureOfExperts moe;
  const int32_t routed = config.experts + config.identity;
  moe.logit_cap = config.logit_cap;
  moe.shared_scale = config.shared_scale;
  // A router's ".bias" may be what is added for the choice only.
  const bool chooses = fmt::format("{}.bias", names.router.hugging_face) == names.choice_bias.hugging_face;
  moe.router = chooses && config.choice_bias && !scope.gguf()
                   ? Linear{.weight = scope.InPanels(scope.Matrix(names.router, routed, hidden)), .bias = {}}
                   : scope.BindLinear(names.router, routed, hidden, config.router_bias);
  moe.score = config.score;
  moe.chosen = config.chosen;
  moe.groups = config.groups;
  moe.groups_kept = config.groups_kept;
  moe.group_best = config.group_best;
  if (config.choice_bias) moe.choice_bias = scope.Table(names.choice_bias, 1, routed);
  moe.scale_inputs = config.scale_inputs;
  moe.jitter = config.jitter;
  moe.normalize = config.normalize;
  moe.normalize_eps = config.normalize_eps;
  moe.scale = config.scale;
  moe.clamp = config.clamp;
  return moe;
}

void BindGroupExperts(const TensorScope& scope, int64_t hidden, const MixtureConfig& config,
                      MixtureOfExperts* moe) {
  MixtureOfExperts group = *moe;
  group.scale *= config.group_scale;
  const auto bind = [&](std::string_view name, int64_t out, int64_t in) {
    std::vector<kernels::Matrix> matrices;
    for (const kernels::Matrix& one :
         scope.Stacked({"", name}, config.experts / config.group_size, out, in)) {
      matrices.insert(matrices.end(), static_cast<size_t>(config.group_size),
                      scope.InPanels(one, WeightUse::kExpert));
    }
    return matrices;
  };
  group.gate = bind("ffn_gate_chexps.weight", config.group_width, hidden);
  group.up = bind("ffn_up_chexps.weight", config.group_width, hidden);
  group.down = bind("ffn_down_chexps.weight", hidden, config.group_width);
  group.expert_panels = scope.expert_panels();
  FinishExperts(scope, hidden, config.group_width, &group);
  RowWidths::Grow(scope.widths().shared, hidden);
  moe->added.push_back(std::move(group));
}

MixtureOfExperts BindMixture(const TensorScope& scope, int64_t hidden, const MixtureConfig& config,
                             const MixtureNames& names) {
  MixtureOfExperts moe = BindRouter(scope, hidden, config, names);
  BindExperts(scope, names.experts, config.experts, hidden, config.width, &moe);
  return moe;
}

}  // namespace quire::runner::models
