// Mixtures of experts: each token runs through a few of many gated feed-forward layers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/experts.h"
#include "runner/models/mlp.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {

// y = sum over the chosen e of weight_e * down_e(activation(gate_e(x)) * up_e(x)), in ascending order of e,
// plus shared_scale * shared(x) if there is a shared expert, times sigmoid(shared_gate(x)) if that has a
// gate. The router may know more experts than there are matrices: the others give x itself. With `clamp`,
// activation(g) * u is kernels::ClampedSwiglu.
struct MixtureOfExperts {
  Linear router;  // [experts, hidden], the experts without matrices last
  kernels::RoutingRule::Score score = kernels::RoutingRule::Score::kSoftmax;
  int32_t chosen = 0;                                   // per token
  int32_t groups = 1, groups_kept = 1, group_best = 1;  // RoutingRule
  std::vector<float> choice_bias;                       // [experts], or empty
  std::vector<float> expert_scale;                      // [experts], or empty
  std::vector<int32_t> by_token;  // [vocab, chosen] the experts of each token (hash routing), or empty
  bool normalize = true;
  float normalize_eps = 0;
  float scale = 1;
  float jitter = 0;                                  // RoutingRule
  bool scale_inputs = false;                         // weight_e multiplies x in place of the result (Llama 4)
  std::vector<kernels::Matrix> gate, up, down;       // [experts]; no gate: down(max(up(x), 0)^2)
  std::vector<float> gate_bias, up_bias, down_bias;  // [experts, width or hidden], or empty
  bool gathers = true;           // copies rows for gate and up; int8 products quantize them where they are
  Linear latent_in, latent_out;  // around the experts, which are narrower than the model; or none
  ExpertPanels* expert_panels = nullptr;  // what products of `gate`, `up` and `down` pass; or null
  Activation activation = Activation::kSilu;
  kernels::SwigluClamp clamp = {};
  float logit_cap = 0;  // of the router's logits; 0 = none
  float shared_scale = 1;
  GatedMlp shared;                      // without weights where there is none
  PlainMlp plain_shared;                // likewise
  Linear shared_gate;                   // [1, hidden]
  std::vector<MixtureOfExperts> added;  // others, whose results are added

  void Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const { Run(ctx, x, x, y); }
  // The router sees other rows than the experts.
  void Run(ForwardContext& ctx, std::span<const float> router_x, std::span<const float> x,
           std::span<float> y) const;

 private:
  void Choose(ForwardContext& ctx, std::span<const float> x) const;
  // What the chosen experts make of x; y may be x.
  void RunChosen(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;
  // The places of experts that have matrices: the first ones.
  int64_t Places(const ForwardContext& ctx) const { return ctx.work.routing.begin[up.size()]; }
  // gated [Places(), width] = activation(gate(x)) * up(x).
  void RunGates(ForwardContext& ctx, std::span<const float> x, std::span<float> gated) const;
  void AddShared(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;
};

// The names of the three matrices of an expert, "{}" for its number, in a Hugging Face checkpoint; in GGUF
// they are stacked in ffn_{gate,up,down}_exps or ffn_gate_up_exps, or, in early files, one by one in
// ffn_{gate,up,down}.N.
struct ExpertNames {
  std::string_view gate, up, down;
  std::string_view gate_up_stacked, down_stacked;  // complete; empty where a family never stacks them
  bool plain = false;                              // there are no gates
};

// Mixtral's, which later families took over.
inline constexpr ExpertNames kMixtralExperts = {.gate = "block_sparse_moe.experts.{}.w1",
                                                .up = "block_sparse_moe.experts.{}.w3",
                                                .down = "block_sparse_moe.experts.{}.w2",
                                                .gate_up_stacked = "mlp.experts.gate_up_proj",
                                                .down_stacked = "mlp.experts.down_proj"};

// The last step of what binds experts: sets `gathers` and the memory of a step. REQUIRES: all else is set.
void FinishExperts(const TensorScope& layer, int64_t hidden, int64_t width, MixtureOfExperts* moe);

// Fills gate, up and down, in whichever form the file has them. REQUIRES: all else of `moe` is set.
void BindExperts(const TensorScope& layer, const ExpertNames& names, int64_t experts, int64_t hidden,
                 int64_t width, MixtureOfExperts* moe);

}  // namespace quire::runner::models
