// The properties that tell one family's mixture of experts from another's: its router, its experts, and those
// that all tokens run through.
#pragma once

#include <cstdint>
#include <vector>

#include "runner/models/decoder.h"
#include "runner/models/moe.h"

namespace quire::runner::models {

struct MixtureConfig {
  using Score = kernels::RoutingRule::Score;

  int32_t experts = 0;  // 0: no layer has any
  int32_t chosen = 0;
  int32_t width = 0;         // of an expert
  int32_t shared_width = 0;  // of the shared experts as one; 0 = none
  bool shared_gate = false;  // MixtureOfExperts
  Score score = Score::kSoftmax;
  bool normalize = true;
  float normalize_eps = 0;
  float scale = 1;
  int32_t groups = 1, groups_kept = 1, group_best = 1;  // kernels::RoutingRule
  bool choice_bias = false;
  bool scale_inputs = false;  // MixtureOfExperts
  float jitter = 0;           // kernels::RoutingRule
  Bias router_bias = Bias::kAbsent;
  int32_t identity = 0;             // MixtureOfExperts
  float logit_cap = 0;              // MixtureOfExperts
  float shared_scale = 1;           // MixtureOfExperts
  kernels::SwigluClamp clamp = {};  // MixtureOfExperts
  // A second, small expert for each group of experts, which is chosen with them.
  int32_t group_size = 0, group_width = 0;  // 0: there are none
  float group_scale = 1;                    // of their results
  std::vector<bool> sparse;                 // [layers]: whether a layer has experts
};

// What configurations of a family may leave out; the second half of Hugging Face only.
struct MixtureDefaults {
  MixtureConfig::Score score = MixtureConfig::Score::kSoftmax;
  bool normalize = true;
  double scale = 1;
  int32_t first_dense = 0, shared = 0;
  int32_t groups = 1, groups_kept = 1;
  bool greedy = false;                   // experts are chosen from all groups where no topk_method is named
  const MixtureConfig* sizes = nullptr;  // chosen and width, which a family reads by itself
  bool all_sparse = false;               // each layer has experts, and no key says which do
  bool as_stored = false;  // the layers of a GGUF with a router have experts, whatever its keys say
};

// The keys that Hugging Face's families share, and GGUF's. Layers are sparse from first_k_dense_replace on,
// every moe_layer_freq-th or decoder_sparse_step-th, and not those of mlp_only_layers; or as mlp_layer_types
// says. A value that has no implementation is an error that names its key.
MixtureConfig ReadMixture(ConfigReader& read, int32_t layers, const MixtureDefaults& defaults);

// The names that families differ in. GGUF has one set for all.
struct MixtureNames {
  TensorName router = {"mlp.gate", "ffn_gate_inp"};
  TensorName choice_bias = {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"};
  MlpNames shared = {.gate = {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
                     .up = {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
                     .down = {"mlp.shared_experts.down_proj", "ffn_down_shexp"}};
  TensorName shared_gate = {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"};
  ExpertNames experts = {.gate = "mlp.experts.{}.gate_proj",
                         .up = "mlp.experts.{}.up_proj",
                         .down = "mlp.experts.{}.down_proj",
                         .gate_up_stacked = "mlp.experts.gate_up_proj",
                         .down_stacked = "mlp.experts.down_proj"};
};

// The names of Granite's experts, with state-space layers and without.
MixtureNames GraniteMixtureNames();

// The mixture but for its shared experts, which the decoder binds.
// After the rest of `moe` but its experts.
void BindGroupExperts(const TensorScope& scope, int64_t hidden, const MixtureConfig& config,
                      MixtureOfExperts* moe);

MixtureOfExperts BindMixture(const TensorScope& scope, int64_t hidden, const MixtureConfig& config,
                             const MixtureNames& names);
// The same without its experts' matrices.
MixtureOfExperts BindRouter(const TensorScope& scope, int64_t hidden, const MixtureConfig& config,
                            const MixtureNames& names);

}  // namespace quire::runner::models
