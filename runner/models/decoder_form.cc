#include "runner/models/decoder_form.h"

#include <cmath>
#include <utility>
#include <variant>

#include "runner/kernels/elementwise.h"

namespace quire::runner::models {
namespace {

// One layer. Norms in places that the form does not have are empty.
struct DeclaredBlock {
  Norm attention_norm;
  Attention attention;
  Norm post_attention_norm;
  Norm mlp_norm;
  std::variant<GatedMlp, PlainMlp> feed_forward;
  Norm post_mlp_norm;
};

float Softplus(float x) { return std::log1p(std::exp(x)); }

kernels::XieluShape BindXielu(const TensorScope& scope) {
  kernels::XieluShape shape;
  shape.beta = scope.Scalar({"mlp.act_fn.beta", ""});
  shape.eps = scope.Scalar({"mlp.act_fn.eps", ""});
  shape.positive = Softplus(scope.Scalar({"mlp.act_fn.alpha_p", ""}));
  shape.negative = shape.beta + Softplus(scope.Scalar({"mlp.act_fn.alpha_n", ""}));
  return shape;
}

class DeclaredDecoder final : public Decoder {
 public:
  DeclaredDecoder(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind,
                  const DecoderForm& form)
      : Decoder(std::move(files), form.decoder),
        parallel_(form.norms == NormPlaces::kParallel),
        residual_scale_(form.residual_scale),
        rotaries_(form.ropes.begin(), form.ropes.end()) {
    embedding_scale_ = form.embedding_scale;
    logit_scale_ = form.logit_scale;
    logit_cap_ = form.logit_cap;
    BindEmbedding(bind);
    for (size_t i = 0; i < form.layers.size() && !bind.error(); ++i) {
      blocks_.push_back(BindBlock(bind.Layer(i), form, form.layers[i]));
    }
    BindHead(bind);
  }

  void SetContext(int64_t tokens) override {
    for (RotaryEmbedding& rotary : rotaries_) rotary.SetContext(tokens);
  }

 private:
  DeclaredBlock BindBlock(const TensorScope& scope, const DecoderForm& form, const LayerForm& layer) {
    const BlockNames& names = form.names;
    const bool before = form.norms != NormPlaces::kAfter;
    const bool after = form.norms == NormPlaces::kAfter || form.norms == NormPlaces::kAround;
    DeclaredBlock block;
    if (before) block.attention_norm = BindLayerNorm(scope, names.attention_norm);
    block.attention = BindDeclaredAttention(scope, form, layer);
    if (after) block.post_attention_norm = BindLayerNorm(scope, names.post_attention_norm);
    if (before && !parallel_) block.mlp_norm = BindLayerNorm(scope, names.mlp_norm);
    if (form.decoder.plain_activation) {
      PlainMlp plain = BindPlainMlp(scope, form.feed_forward, names.mlp.up, names.mlp.down, form.mlp_bias);
      if (plain.activation == PlainActivation::kXielu) plain.xielu = BindXielu(scope);
      block.feed_forward = std::move(plain);
    } else {
      block.feed_forward = BindMlp(scope, form.feed_forward, names.mlp, form.mlp_bias);
    }
    if (after) block.post_mlp_norm = BindLayerNorm(scope, names.post_mlp_norm);
    return block;
  }

  Attention BindDeclaredAttention(const TensorScope& scope, const DecoderForm& form, const LayerForm& layer) {
    const DecoderConfig& decoder = form.decoder;
    const bool rotated = layer.rope != LayerForm::kNoRope;
    Attention attention =
        BindAttention(scope,
                      {.heads = decoder.heads,
                       .kv_heads = decoder.kv_heads,
                       .head_dim = decoder.head_dim,
                       .window = layer.window,
                       .qk_norm = form.qk_norm,
                       .bias = form.attention_bias,
                       .out_bias = form.out_bias},
                      rotated ? &rotaries_[static_cast<size_t>(layer.rope)] : nullptr, form.names.attention);
    attention.scale = form.attention_scale;
    attention.soft_cap = form.score_cap;
    attention.growth = form.query_growth;
    return attention;
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override {
    for (RotaryEmbedding& rotary : rotaries_) rotary.Prepare(ctx);
  }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const DeclaredBlock& block = blocks_[layer];
    const auto attention = [&](auto x, auto y) { block.attention.Run(ctx, x, y); };
    const auto feed_forward = [&](auto x, auto y) {
      std::visit([&](const auto& part) { part.Run(ctx, x, y); }, block.feed_forward);
    };
    if (parallel_) {
      // The norm of h outlives the attention's addition to h.
      const std::span<float> normed = ctx.work.normed.Get(static_cast<int64_t>(h.size()));
      block.attention_norm.Run(ctx.pool, h, normed);
      AddTo(ctx, h, normed, attention, block.post_attention_norm);
      AddTo(ctx, h, normed, feed_forward, block.post_mlp_norm);
      return;
    }
    AddTo(ctx, h, Normed(ctx, block.attention_norm, h), attention, block.post_attention_norm);
    AddTo(ctx, h, Normed(ctx, block.mlp_norm, h), feed_forward, block.post_mlp_norm);
  }

  // norm(h), or h itself where there is no norm.
  static std::span<const float> Normed(ForwardContext& ctx, const Norm& norm, std::span<const float> h) {
    if (!norm) return h;
    const std::span<float> normed = ctx.work.normed.Get(static_cast<int64_t>(h.size()));
    norm.Run(ctx.pool, h, normed);
    return normed;
  }

  // h += scale * post_norm(part(x)).
  template <class Part>
  void AddTo(ForwardContext& ctx, std::span<float> h, std::span<const float> x, const Part& part,
             const Norm& post_norm) const {
    const std::span<float> mixed = ctx.work.mixed.Get(static_cast<int64_t>(h.size()));
    part(x, mixed);
    if (post_norm) post_norm.Run(ctx.pool, mixed, mixed);
    if (residual_scale_ != 1) kernels::Scale(ctx.pool, residual_scale_, mixed);
    kernels::Add(ctx.pool, mixed, h);
  }

  const bool parallel_;
  const float residual_scale_;
  std::vector<RotaryEmbedding> rotaries_;  // [ropes]; layers point into it
  std::vector<DeclaredBlock> blocks_;
};

}  // namespace

DecoderForm ReadDecoderForm(ConfigReader& read, const FormQuery& query) {
  DecoderForm form{.decoder = ReadDecoderConfig(read, query.given, query.tied),
                   .feed_forward = ReadFeedForward(read)};
  RopeQuery rope = query.rope;
  rope.head_dim = form.decoder.head_dim;
  form.ropes.push_back(ReadRope(read, rope));
  const std::vector<int32_t> windows =
      ReadWindows(read, form.decoder.layers, query.slides, query.period, query.given_window);
  form.layers.resize(windows.size());
  for (size_t i = 0; i < windows.size(); ++i) form.layers[i].window = windows[i];
  return form;
}

Bias ReadBias(ConfigReader& read, const char* key, bool fallback) {
  if (read.gguf()) return Bias::kIfStored;
  return read.Boolean({key, ""}, fallback) ? Bias::kPresent : Bias::kAbsent;
}

api::Result<std::unique_ptr<Model>> BuildDeclared(ConfigReader& read,
                                                  std::shared_ptr<const weights::ModelFiles> files,
                                                  const DecoderForm& form) {
  return BuildModel<DeclaredDecoder>(read, std::move(files), form);
}

}  // namespace quire::runner::models
