#include "runner/models/decoder_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/portable_math.h"
#include "runner/models/mtp_join.h"

namespace quire::runner::models {
namespace {

// One layer. Norms in places that the form does not have are empty.
struct DeclaredBlock {
  Norm attention_norm;
  std::variant<Attention, LatentAttention> attention;
  Norm post_attention_norm;
  Norm mlp_norm;
  std::variant<GatedMlp, PlainMlp, MixtureOfExperts> feed_forward;
  Norm post_mlp_norm;
  HyperConnection attention_connection, mlp_connection;  // of a residual with several streams
  Norm beside_norm;
  MixtureOfExperts beside;  // MixtureForm::beside_norm
};

kernels::XieluShape BindXielu(const TensorScope& scope) {
  return MakeXielu(scope.Scalar({"mlp.act_fn.alpha_p", ""}), scope.Scalar({"mlp.act_fn.alpha_n", ""}),
                   scope.Scalar({"mlp.act_fn.beta", ""}), scope.Scalar({"mlp.act_fn.eps", ""}));
}

class DeclaredDecoder : public Decoder {
 public:
  DeclaredDecoder(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind,
                  const DecoderForm& form)
      : DeclaredDecoder(std::move(files), form) {
    const BlockNames& names = form.names;
    BindEmbedding(bind, names.embedding);
    if (!names.positions.hugging_face.empty()) BindPositions(bind, names.positions);
    if (!names.embedding_norm.hugging_face.empty()) {
      BindEmbeddingNorm(bind, names.embedding_norm, form.embedding_norm);
    }
    if (form.transposed) bind.ExpectTransposed();
    for (size_t i = 0; i < form.layers.size() && !bind.error(); ++i) {
      AddBlock(bind.Layer(i, names.layers), i);
    }
    if (form.streams) {
      end_ = BindConnection(bind.Global(), form.streams->shape, form.streams->end, /*writes=*/false);
    }
    for (size_t i = 0; i + form.layers.size() < form.layers.size() * static_cast<size_t>(form.loops); ++i) {
      AddLoop(i);
    }
    BindHead(bind, names.final_norm, names.head, form.final_norm);
  }

  void SetContext(int64_t tokens) override {
    for (RotaryEmbedding& rotary : rotaries_) rotary.SetContext(tokens);
  }

  const DecoderForm& form() const { return form_; }

 protected:
  // Without any layer yet.
  DeclaredDecoder(std::shared_ptr<const weights::ModelFiles> files, const DecoderForm& form)
      : Decoder(std::move(files), form.decoder),
        form_(form),
        parallel_(form.norms == NormPlaces::kParallel),
        beside_(form.norms == NormPlaces::kBeside),
        residual_scale_(form.residual_scale),
        rotaries_(form.ropes.begin(), form.ropes.end()) {
    if (form.streams) streams_ = form.streams->shape.streams;
    embedding_scale_ = form.embedding_scale;
    logit_scale_ = form.logit_scale;
    logit_cap_ = form.logit_cap;
    image_rules_ = {.both_ways = form.images_both_ways,
                    .grid_positions = std::ranges::any_of(
                        form.ropes, [](const RopeSpec& rope) { return !rope.axes.empty(); })};
  }

  // The next layer is a former one again.
  void AddLoop(size_t layer) {
    DeclaredBlock block = blocks_[layer];
    std::visit(
        [&](auto& attention) {
          attention.binding = AddAttention(layout().groups[attention.binding.index], attention.rotary);
        },
        block.attention);
    blocks_.push_back(std::move(block));
  }
  void AddBlock(const TensorScope& scope, size_t layer) { blocks_.push_back(BindBlock(scope, form_, layer)); }
  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override;

 private:
  DeclaredBlock BindBlock(const TensorScope& scope, const DecoderForm& form, size_t layer) {
    const BlockNames& names = form.names;
    const bool before = form.norms != NormPlaces::kAfter;
    const bool after = form.norms == NormPlaces::kAfter || form.norms == NormPlaces::kAround;
    DeclaredBlock block;
    if (form.streams) {
      const StreamForm& streams = *form.streams;
      block.attention_connection = BindConnection(scope, streams.shape, streams.attention, /*writes=*/true);
      block.mlp_connection = BindConnection(scope, streams.shape, streams.feed_forward, /*writes=*/true);
    }
    if (before) block.attention_norm = BindLayerNorm(scope, names.attention_norm);
    if (form.latent) {
      block.attention = BindLatent(scope, *form.latent, layer);
    } else {
      block.attention = BindGroupedQuery(scope, form, layer);
    }
    if (after) block.post_attention_norm = BindPostNorm(scope, names.post_attention_norm);
    if (before && !parallel_) block.mlp_norm = BindLayerNorm(scope, names.mlp_norm);
    BindFeedForward(scope, form, layer, &block);
    if (beside_) RowWidths::Grow(scope.widths().outputs, config().hidden);
    if (after) block.post_mlp_norm = BindPostNorm(scope, names.post_mlp_norm);
    return block;
  }

  Norm BindPostNorm(const TensorScope& scope, TensorName name) const {
    Norm norm = BindLayerNorm(scope, name);
    if (form_.post_norm_eps > 0) norm.eps = form_.post_norm_eps;
    return norm;
  }

  void BindFeedForward(const TensorScope& scope, const DecoderForm& form, size_t layer,
                       DeclaredBlock* block) const {
    const BlockNames& names = form.names;
    const bool sparse = form.mixture.config.experts > 0 && form.mixture.config.sparse[layer];
    if (sparse && !form.mixture.beside_norm.gguf.empty()) {
      RowWidths::Grow(scope.widths().outputs, config().hidden);
      block->beside_norm = BindLayerNorm(scope, form.mixture.beside_norm);
      block->beside = BindDeclaredMixture(scope, form.mixture);
      block->feed_forward = BindMlp(scope, form.feed_forward, names.mlp, form.mlp_bias);
    } else if (sparse) {
      MixtureOfExperts moe = BindDeclaredMixture(scope, form.mixture);
      if (!form.mixture.clamps.empty()) moe.clamp = form.mixture.clamps[layer];
      if (!form.mixture.shared_clamps.empty()) moe.shared.clamp = form.mixture.shared_clamps[layer];
      block->feed_forward = std::move(moe);
    } else if (form.decoder.plain_activation) {
      PlainMlp plain = BindPlainMlp(scope, form.feed_forward, names.mlp.up, names.mlp.down, form.mlp_bias);
      if (plain.activation == PlainActivation::kXielu) {
        plain.xielu = form.xielu.empty() ? BindXielu(scope) : form.xielu[layer];
      }
      block->feed_forward = std::move(plain);
    } else {
      block->feed_forward = BindMlp(scope, form.feed_forward, names.mlp, form.mlp_bias);
    }
  }

  MixtureOfExperts BindDeclaredMixture(const TensorScope& scope, const MixtureForm& form) const {
    const MixtureConfig& mixture = form.config;
    const int64_t hidden = config().hidden;
    MixtureOfExperts moe = BindRouter(scope, hidden, mixture, form.names);
    if (form.early) RowWidths::Grow(scope.widths().per_layer, hidden);
    moe.activation = config().activation;
    if (mixture.group_size > 0) BindGroupExperts(scope, hidden, mixture, &moe);
    if (form.bind_experts != nullptr) {
      form.bind_experts(scope, hidden, mixture, &moe);
    } else {
      BindExperts(scope, form.names.experts, mixture.experts, hidden, mixture.width, &moe);
    }
    if (mixture.shared_width > 0) {
      RowWidths::Grow(scope.widths().shared, hidden);
      moe.shared = BindMlp(scope, mixture.shared_width, form.names.shared, form_.mlp_bias);
      if (mixture.shared_gate) moe.shared_gate = scope.BindLinear(form.names.shared_gate, 1, hidden);
    }
    return moe;
  }

  LatentAttention BindLatent(const TensorScope& scope, const LatentAttentionShape& shape, size_t index) {
    LatentAttention attention = BindLatentAttention(scope, config().hidden, shape);
    attention.rotary = &rotaries_[static_cast<size_t>(form_.layers[index].rope)];
    if (form_.layers[index].sinks) attention.sinks = scope.Values(form_.names.attention.sinks, shape.heads);
    if (!form_.names.latent_gate.gguf.empty()) {
      const int64_t values = int64_t{shape.heads} * shape.value;
      attention.gate = {.kind = OutputGate::Kind::kSigmoid,
                        .linear = scope.BindLinear(form_.names.latent_gate, values, config().hidden)};
      RowWidths::Grow(scope.widths().attention_gate, values);
    }
    attention.growth = form_.query_growth;
    attention.binding = AddAttention(shape.Group(), attention.rotary);
    attention.selected = IndexerUse(index) != IndexerForm::Use::kNone;
    if (IndexerUse(index) == IndexerForm::Use::kOwn) {
      attention.indexer = BindQueryIndexer(scope, *form_.indexer, shape.query_rank);
    }
    return attention;
  }

  IndexerForm::Use IndexerUse(size_t layer) const {
    return form_.indexer ? form_.indexer->layers[layer] : IndexerForm::Use::kNone;
  }

  // What all indexers have.
  Indexer StartIndexer(const TensorScope& scope, const IndexerForm& form) {
    Indexer indexer;
    indexer.dim = form.dim;
    indexer.rule = form.rule;
    indexer.rule.heads = form.heads;
    indexer.rotary = &rotaries_[static_cast<size_t>(form.rope)];
    indexer.rotated_last = form.rotated_last;
    indexer.keys = AddRows({.head_dim = form.dim}, indexer.rotary);
    indexer.GrowWidths(scope.widths());
    return indexer;
  }

  // DeepSeek V3.2's, with queries from the compressed ones of latent attention.
  Indexer BindQueryIndexer(const TensorScope& scope, const IndexerForm& form, int32_t query_rank) {
    Indexer indexer = StartIndexer(scope, form);
    const int64_t hidden = config().hidden;
    indexer.query = scope.BindLinear({"self_attn.indexer.wq_b", "indexer.attn_q_b"},
                                     int64_t{form.heads} * form.dim, query_rank);
    indexer.key = scope.BindLinear({"self_attn.indexer.wk", "indexer.attn_k"}, form.dim, hidden);
    constexpr TensorName kNorm = {"self_attn.indexer.k_norm", "indexer.k_norm"};
    indexer.key_norm = {.kind = NormKind::kLayer,
                        .weight = scope.Norm(kNorm, form.dim),
                        .bias = scope.BiasOf(kNorm, form.dim, Bias::kPresent),
                        .eps = form.key_eps};
    indexer.weights =
        scope.BindLinear({"self_attn.indexer.weights_proj", "indexer.proj"}, form.heads, hidden);
    indexer.weight_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(form.heads)));
    return indexer;
  }

  // MiniMax-M3's, with a query head for each KV head.
  Indexer BindHeadIndexer(const TensorScope& scope, const IndexerForm& form) {
    Indexer indexer = StartIndexer(scope, form);
    const int64_t hidden = config().hidden;
    indexer.query = scope.BindLinear({"self_attn.index_q_proj", "indexer.q_proj"},
                                     int64_t{form.heads} * form.dim, hidden);
    indexer.key = scope.BindLinear({"self_attn.index_k_proj", "indexer.k_proj"}, form.dim, hidden);
    indexer.query_norm = BindNorm(scope, {"self_attn.index_q_norm", "indexer.q_norm"}, form.dim);
    RmsNorm key = BindNorm(scope, {"self_attn.index_k_norm", "indexer.k_norm"}, form.dim);
    indexer.key_norm = {.kind = NormKind::kRms, .weight = std::move(key.weight), .bias = {}, .eps = key.eps};
    return indexer;
  }

  Attention BindGroupedQuery(const TensorScope& scope, const DecoderForm& form, size_t index) {
    const DecoderConfig& decoder = form.decoder;
    const LayerForm& layer = form.layers[index];
    const bool rotated = layer.rope != LayerForm::kNoRope;
    const bool unit = form.qk_norm == QkNorm::kUnitHeads && !form.norm_unrotated;
    Attention attention =
        BindAttention(scope,
                      {.heads = layer.heads > 0 ? layer.heads : decoder.heads,
                       .kv_heads = layer.kv_heads > 0 ? layer.kv_heads : decoder.kv_heads,
                       .head_dim = decoder.head_dim,
                       .value_dim = form.value_dim,
                       .window = layer.window,
                       .chunked = layer.chunked,
                       .qk_norm = unit && !rotated ? QkNorm::kNone : form.qk_norm,
                       .qk_eps = form.qk_eps,
                       .gate = form.output_gate,
                       .sinks = layer.sinks,
                       .bias = form.attention_bias,
                       .out_bias = form.out_bias},
                      rotated ? &rotaries_[static_cast<size_t>(layer.rope)] : nullptr, form.names.attention);
    if (IndexerUse(index) == IndexerForm::Use::kOwn) {
      attention.indexer = BindHeadIndexer(scope, *form.indexer);
    }
    attention.scale = layer.attention_scale > 0 ? layer.attention_scale : form.attention_scale;
    attention.soft_cap = form.score_cap;
    attention.clip = form.clip_qkv;
    attention.value_scale = form.value_scale;
    if (!rotated || !form.growth_unrotated) attention.growth = form.query_growth;
    if (form.alibi > 0) attention.slopes = AlibiSlopes(decoder.heads, form.alibi);
    return attention;
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override {
    for (RotaryEmbedding& rotary : rotaries_) rotary.Prepare(ctx);
  }

  void JoinStreams(ForwardContext& ctx, std::span<const float> h, std::span<float> to) override {
    end_.Read(ctx, h, to);
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

  const DecoderForm form_;
  const bool parallel_, beside_;
  const float residual_scale_;
  std::vector<RotaryEmbedding> rotaries_;  // [ropes]; layers point into it
  std::vector<DeclaredBlock> blocks_;
  HyperConnection end_;  // of several streams
};

void DeclaredDecoder::RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) {
  const DeclaredBlock& block = blocks_[layer];
  if (form_.loop_norm && layer > 0 && layer % form_.layers.size() == 0) NormFinally(ctx, h);
  const auto attention = [&](auto x, auto y) {
    std::visit([&](const auto& part) { part.Run(ctx, x, y); }, block.attention);
  };
  // The layer's input outlives the attention's addition to h.
  std::span<float> input;
  if (form_.mixture.early) {
    input = ctx.work.per_layer.Get(static_cast<int64_t>(h.size()));
    std::ranges::copy(h, input.begin());
  }
  const auto feed_forward = [&](auto x, auto y) {
    const auto* const experts = std::get_if<MixtureOfExperts>(&block.feed_forward);
    if (experts != nullptr && !input.empty()) return experts->Run(ctx, input, x, y);
    std::visit([&](const auto& part) { part.Run(ctx, x, y); }, block.feed_forward);
  };
  if (form_.streams) {
    RunThrough(ctx, block.attention_connection, block.attention_norm, h, attention);
    return RunThrough(ctx, block.mlp_connection, block.mlp_norm, h, feed_forward);
  }
  if (parallel_) {
    // The norm of h outlives the attention's addition to h.
    const std::span<float> normed = ctx.work.normed.Get(static_cast<int64_t>(h.size()));
    block.attention_norm.Run(ctx.pool, h, normed);
    AddTo(ctx, h, normed, attention, block.post_attention_norm);
    AddTo(ctx, h, normed, feed_forward, block.post_mlp_norm);
    return;
  }
  if (beside_) {
    // As above, and the attention's norm is elsewhere.
    const std::span<float> normed = ctx.work.outputs.Get(static_cast<int64_t>(h.size()));
    block.mlp_norm.Run(ctx.pool, h, normed);
    AddTo(ctx, h, Normed(ctx, block.attention_norm, h), attention, block.post_attention_norm);
    AddTo(ctx, h, normed, feed_forward, block.post_mlp_norm);
    return;
  }
  const bool experts_beside = static_cast<bool>(block.beside_norm);
  const std::span<float> beside = ctx.work.outputs.Get(experts_beside ? static_cast<int64_t>(h.size()) : 0);
  if (experts_beside) block.beside.Run(ctx, Normed(ctx, block.beside_norm, h), beside);
  AddTo(ctx, h, Normed(ctx, block.attention_norm, h), attention, block.post_attention_norm);
  AddTo(ctx, h, Normed(ctx, block.mlp_norm, h), feed_forward, block.post_mlp_norm);
  if (experts_beside) kernels::Add(ctx.pool, beside, h);
}

// A joined input, one block, a norm and the target's head. As vllm's deepseek_mtp and glm4_moe_mtp have it;
// nothing in transformers runs it.
class DeclaredMtp final : public DeclaredDecoder {
 public:
  DeclaredMtp(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind, const DecoderForm& form,
              size_t layer, const Decoder& target)
      : DeclaredDecoder(std::move(files), form) {
    const int32_t hidden = config().hidden;
    const TensorScope block = bind.Layer(layer);
    const TensorScope scope = block.gguf() ? bind.MtpScope(layer) : block;
    input.token_norm = BindNorm(scope, {"enorm", "enorm"}, hidden);
    input.before_norm = BindNorm(scope, {"hnorm", "hnorm"}, hidden);
    input.join = scope.BindLinear({"eh_proj", "eh_proj"}, hidden, 2 * int64_t{hidden});
    AddBlock(block, 0);
    ShareEmbeddingAndHead(target, scope, {"shared_head.norm", "shared_head_norm"}, bind);
  }

  MtpJoin input;

 private:
  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    input.Run(ctx, h);
    DeclaredDecoder::RunLayer(ctx, layer, h);
  }
};

}  // namespace

api::Result<std::unique_ptr<Model>> BuildDeclared(ConfigReader& read,
                                                  std::shared_ptr<const weights::ModelFiles> files,
                                                  const DecoderForm& form) {
  return BuildModel<DeclaredDecoder>(read, std::move(files), form);
}

api::Result<std::unique_ptr<MtpLayer>> LoadDeclaredMtp(std::shared_ptr<const weights::ModelFiles> files,
                                                       const Model& target, api::KvType kv_type) {
  const auto* const declared = dynamic_cast<const DeclaredDecoder*>(&target);
  if (declared == nullptr || declared->form().mtp_layers == 0) return nullptr;
  PanelStore* const panels = AttachPanels(&files);
  TensorBinder bind(*files, panels);
  DecoderForm form = declared->form();
  const auto layer = static_cast<size_t>(form.decoder.layers);
  const TensorScope scope =
      files->format() == weights::Format::kGguf ? bind.MtpScope(layer) : bind.Layer(layer);
  if (!scope.HasWeight({"eh_proj", "eh_proj"})) return nullptr;  // many checkpoints leave it out
  form.decoder.layers = 1;
  form.layers = {form.layers.back()};
  form.mixture.config.sparse = {true};
  if (form.indexer) form.indexer->layers = {IndexerForm::Use::kOwn};
  auto mtp = std::make_unique<DeclaredMtp>(files, bind, form, layer, *declared);
  return FinishMtpLayer(bind, std::move(mtp), kv_type);
}

}  // namespace quire::runner::models
