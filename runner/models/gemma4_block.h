// One layer of Gemma 4, as the text models and their assistant have it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runner/models/attention.h"
#include "runner/models/gemma4_config.h"
#include "runner/models/mlp.h"
#include "runner/models/moe.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {

//   h += post_attention_norm(attention(attention_norm(h)))
//   m = geglu(mlp_norm(h))
//   with experts: m = mlp_out_norm(m) + experts_out_norm(experts(experts_norm(h))), chosen by router_norm(h)
//   h += post_mlp_norm(m)
//   with per-layer inputs: h += per_layer_norm(per_layer_out(gelu(per_layer_gate(h)) * per_layer))
//   h *= scale
struct Gemma4Block {
  struct Experts {
    RmsNorm mlp_out_norm, experts_norm, experts_out_norm;
    RmsNorm router_norm;  // its weight includes 1 / sqrt(hidden)
    MixtureOfExperts mixture;
  };

  RmsNorm attention_norm;
  Attention attention;
  RmsNorm post_attention_norm;
  RmsNorm mlp_norm;
  GatedMlp mlp;
  std::optional<Experts> experts;
  RmsNorm post_mlp_norm;
  Linear per_layer_gate, per_layer_out;
  RmsNorm per_layer_norm;
  float scale = 1;

  // h [rows, hidden] in place; per_layer [rows, width], or empty.
  void Run(ForwardContext& ctx, std::span<float> h, std::span<const float> per_layer) const;

 private:
  void RunExperts(ForwardContext& ctx, std::span<const float> h, std::span<float> mixed) const;
};

// Without the attention's cache binding. A layer without its own keys has no keys to bind.
Gemma4Block BindGemma4Block(const TensorScope& scope, const Gemma4Config& config, size_t layer,
                            const RotaryEmbedding* rotary);

}  // namespace quire::runner::models
