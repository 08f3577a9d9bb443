#include "runner/models/gemma4_block.h"

#include <cmath>

#include "runner/kernels/elementwise.h"

namespace quire::runner::models {
namespace {

constexpr ExpertNames kExpertNames = {.gate = "experts.{}.gate_proj",
                                      .up = "experts.{}.up_proj",
                                      .down = "experts.{}.down_proj",
                                      .gate_up_stacked = "experts.gate_up_proj",
                                      .down_stacked = "experts.down_proj"};

// Binds the parts of one layer.
class Binder {
 public:
  Binder(const TensorScope& scope, const Gemma4Config& config, size_t layer)
      : scope_(scope), config_(config), layer_(layer), hidden_(config.decoder.hidden) {}

  RmsNorm Norm(TensorName name, int64_t size) const {
    return {.weight = scope_.Norm(name, size), .eps = config_.decoder.norm_eps};
  }
  RmsNorm Norm(TensorName name) const { return Norm(name, hidden_); }

  // Scores are not scaled: the norms of queries and keys take care of that.
  Attention BindAttention(const RotaryEmbedding* rotary) const {
    const int32_t head_dim = config_.head_dim(layer_), heads = config_.decoder.heads;
    const int64_t keys = config_.kv_heads[layer_] * head_dim, queries = int64_t{heads} * head_dim;
    Attention attention;
    attention.q = scope_.BindLinear({"self_attn.q_proj", "attn_q"}, queries, hidden_);
    attention.q_norm = Norm({"self_attn.q_norm", "attn_q_norm"}, head_dim);
    attention.out = scope_.BindLinear({"self_attn.o_proj", "attn_output"}, hidden_, queries);
    if (static_cast<int32_t>(layer_) < config_.own_layers) {
      attention.k = scope_.BindLinear({"self_attn.k_proj", "attn_k"}, keys, hidden_);
      attention.k_norm = Norm({"self_attn.k_norm", "attn_k_norm"}, head_dim);
      // Full layers of the large models have no matrix for values.
      if (config_.windows[layer_] > 0 || scope_.Has({"self_attn.v_proj.weight", "attn_v.weight"})) {
        attention.v = scope_.BindLinear({"self_attn.v_proj", "attn_v"}, keys, hidden_);
      }
      attention.v_norm = {.weight = std::vector<float>(static_cast<size_t>(head_dim), 1.0F),
                          .eps = config_.decoder.norm_eps};
    }
    scope_.widths().GrowAttention(queries, keys, head_dim, /*gated=*/false);
    attention.rotary = rotary;
    attention.heads = heads;
    attention.head_dim = head_dim;
    attention.scale = 1;
    return attention;
  }

  GatedMlp BindMlp() const {
    const int64_t width = config_.feed_forward[layer_];
    RowWidths::Grow(scope_.widths().ff, width);
    return {.gate = scope_.BindLinear({"mlp.gate_proj", "ffn_gate"}, width, hidden_),
            .up = scope_.BindLinear({"mlp.up_proj", "ffn_up"}, width, hidden_),
            .down = scope_.BindLinear({"mlp.down_proj", "ffn_down"}, hidden_, width),
            .activation = Activation::kGelu};
  }

  Gemma4Block::Experts BindExperts() const {
    Gemma4Block::Experts experts;
    experts.mlp_out_norm = Norm({"post_feedforward_layernorm_1", "post_ffw_norm_1"});
    experts.experts_norm = Norm({"pre_feedforward_layernorm_2", "pre_ffw_norm_2"});
    experts.experts_out_norm = Norm({"post_feedforward_layernorm_2", "post_ffw_norm_2"});
    experts.router_norm = {.weight = scope_.Values({"router.scale", "ffn_gate_inp.scale"}, hidden_),
                           .eps = config_.decoder.norm_eps};
    const auto shrink = static_cast<float>(1 / std::sqrt(static_cast<double>(hidden_)));
    for (float& weight : experts.router_norm.weight) weight *= shrink;
    RowWidths::Grow(scope_.widths().outputs, hidden_);
    RowWidths::Grow(scope_.widths().shared, hidden_);
    MixtureOfExperts& mixture = experts.mixture;
    mixture.router = scope_.BindLinear({"router.proj", "ffn_gate_inp"}, config_.experts, hidden_);
    mixture.expert_scale = scope_.Values({"router.per_expert_scale", "ffn_down_exps.scale"}, config_.experts);
    mixture.chosen = config_.experts_used;
    mixture.activation = Activation::kGelu;
    models::BindExperts(scope_, kExpertNames, config_.experts, hidden_, config_.expert_feed_forward,
                        &mixture);
    return experts;
  }

 private:
  const TensorScope& scope_;
  const Gemma4Config& config_;
  const size_t layer_;
  const int64_t hidden_;
};

}  // namespace

Gemma4Block BindGemma4Block(const TensorScope& scope, const Gemma4Config& config, size_t layer,
                            const RotaryEmbedding* rotary) {
  const Binder bind(scope, config, layer);
  const int64_t hidden = config.decoder.hidden, width = config.per_layer_width;
  Gemma4Block block;
  block.attention_norm = bind.Norm({"input_layernorm", "attn_norm"});
  block.attention = bind.BindAttention(rotary);
  block.post_attention_norm = bind.Norm({"post_attention_layernorm", "post_attention_norm"});
  block.mlp_norm = bind.Norm({"pre_feedforward_layernorm", "ffn_norm"});
  block.mlp = bind.BindMlp();
  if (config.experts > 0) block.experts = bind.BindExperts();
  block.post_mlp_norm = bind.Norm({"post_feedforward_layernorm", "post_ffw_norm"});
  if (width > 0) {
    block.per_layer_gate = scope.BindLinear({"per_layer_input_gate", "inp_gate"}, width, hidden);
    block.per_layer_out = scope.BindLinear({"per_layer_projection", "proj"}, hidden, width);
    block.per_layer_norm = bind.Norm({"post_per_layer_input_norm", "post_norm"});
  }
  const std::vector<float> scale = scope.Values({"layer_scalar", "layer_output_scale.weight"}, 1);
  if (!scale.empty()) block.scale = scale[0];
  return block;
}

void Gemma4Block::RunExperts(ForwardContext& ctx, std::span<const float> h, std::span<float> mixed) const {
  const auto size = static_cast<int64_t>(h.size());
  const std::span<float> normed = ctx.work.normed.Get(size);
  const std::span<float> routed = ctx.work.outputs.Get(size), out = ctx.work.shared.Get(size);
  experts->mlp_out_norm.Run(ctx.pool, mixed, mixed);
  experts->experts_norm.Run(ctx.pool, h, normed);
  experts->router_norm.Run(ctx.pool, h, routed);
  experts->mixture.Run(ctx, routed, normed, out);
  experts->experts_out_norm.Run(ctx.pool, out, out);
  kernels::Add(ctx.pool, out, mixed);
}

void Gemma4Block::Run(ForwardContext& ctx, std::span<float> h, std::span<const float> per_layer) const {
  const std::span<float> normed = ctx.work.normed.Get(static_cast<int64_t>(h.size()));
  const std::span<float> mixed = ctx.work.mixed.Get(static_cast<int64_t>(h.size()));
  attention_norm.Run(ctx.pool, h, normed);
  attention.Run(ctx, normed, mixed);
  post_attention_norm.Run(ctx.pool, mixed, mixed);
  kernels::Add(ctx.pool, mixed, h);

  mlp_norm.Run(ctx.pool, h, normed);
  mlp.Run(ctx, normed, mixed);
  if (experts) RunExperts(ctx, h, mixed);
  post_mlp_norm.Run(ctx.pool, mixed, mixed);
  kernels::Add(ctx.pool, mixed, h);

  if (!per_layer.empty()) {
    const std::span<float> gate = ctx.work.gate.Get(static_cast<int64_t>(per_layer.size()));
    per_layer_gate.Run(ctx.pool, ctx.Input(h), gate);
    kernels::GeluMul(ctx.pool, per_layer, gate);
    per_layer_out.Run(ctx.pool, ctx.Input(gate), mixed);
    per_layer_norm.Run(ctx.pool, mixed, mixed);
    kernels::Add(ctx.pool, mixed, h);
  }
  kernels::Scale(ctx.pool, scale, h);
}

}  // namespace quire::runner::models
