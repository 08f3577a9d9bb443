#include "runner/models/hybrid_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/portable_math.h"
#include "runner/models/mamba1.h"

namespace quire::runner::models {
namespace {

// Parts that a layer does not have are empty.
struct HybridBlock {
  RmsNorm mixer_norm;
  std::variant<std::monostate, Mamba2, Mamba1> mamba;
  std::optional<Attention> attention;
  RmsNorm feed_norm;
  std::variant<std::monostate, GatedMlp, PlainMlp, MixtureOfExperts> feed;

  bool has_mamba() const { return mamba.index() != 0; }
  bool has_feed() const { return feed.index() != 0; }
};

// Calls run(part), unless there is none.
template <class Variant, class Run>
void VisitPart(Variant& variant, const Run& run) {
  std::visit(
      [&](auto& part) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(part)>, std::monostate>) run(part);
      },
      variant);
}

// The tensors of a state-space layer under their names in both formats.
class MambaBinder {
 public:
  MambaBinder(const TensorScope& scope, const HybridForm& form) : scope_(scope), form_(form) {}

  Mamba2 BindSsd() const {
    const kernels::SsdShape& shape = form_.mamba.shape;
    const MambaForm& mamba = form_.mamba;
    Mamba2 mixer;
    mixer.shape = shape;
    const int64_t sizes[] = {shape.inner(), shape.channels(), shape.heads};
    std::vector<Linear> parts = Rows("in_proj", "ssm_in", sizes, form_.decoder.hidden, mamba.in_bias);
    mixer.z = std::move(parts[0]);
    mixer.u = std::move(parts[1]);
    mixer.dt = std::move(parts[2]);
    SetScales(&mixer);
    mixer.kernel = mamba.kernel;
    mixer.taps = Taps(shape.channels());
    mixer.conv_bias = ConvBias(shape.channels());
    mixer.time_bias = Vector("dt_bias", "ssm_dt.bias", shape.heads);
    mixer.rate = Negated(Column("A_log", "ssm_a", shape.heads));
    mixer.skip = Column("D", "ssm_d", shape.heads);
    mixer.step_low = mamba.step_low;
    mixer.step_high = mamba.step_high;
    mixer.norm = {.group = shape.inner() / mamba.norm_groups,
                  .eps = mamba.norm_eps > 0 ? mamba.norm_eps : form_.decoder.norm_eps,
                  .norm_first = mamba.norm_first};
    if (mamba.normed) {
      mixer.norm_weight = scope_.gguf()
                              ? scope_.Table({"", "ssm_norm.weight"}, mamba.norm_groups, mixer.norm.group)
                              : Vector("norm.weight", "", shape.inner());
    }
    mixer.out = OneLinear("out_proj", "ssm_out", form_.decoder.hidden, shape.inner(), mamba.out_bias);
    mixer.GrowWidths(scope_.widths());
    return mixer;
  }

  Mamba1 BindSelective() const {
    const MambaForm& mamba = form_.mamba;
    Mamba1 mixer;
    mixer.inner = mamba.inner;
    mixer.state_rows = mamba.state;
    mixer.step_rank = mamba.step_rank;
    const int64_t halves[] = {mamba.inner, mamba.inner};
    std::vector<Linear> parts = Rows("in_proj", "ssm_in", halves, form_.decoder.hidden, mamba.in_bias);
    mixer.u = std::move(parts[0]);
    mixer.z = std::move(parts[1]);
    const int64_t small[] = {mamba.step_rank, mamba.state, mamba.state};
    std::vector<Linear> steps = Rows("x_proj", "ssm_x", small, mamba.inner, Bias::kAbsent);
    mixer.step = std::move(steps[0]);
    mixer.b = std::move(steps[1]);
    mixer.c = std::move(steps[2]);
    mixer.step_norm = StepNorm("dt_layernorm", "ssm_dt_norm", mamba.step_rank);
    mixer.b_norm = StepNorm("b_layernorm", "ssm_b_norm", mamba.state);
    mixer.c_norm = StepNorm("c_layernorm", "ssm_c_norm", mamba.state);
    mixer.kernel = mamba.kernel;
    mixer.taps = Taps(mamba.inner);
    mixer.conv_bias = ConvBias(mamba.inner);
    // The bias of the time step's projection is added by the kernel.
    mixer.step_up = OneLinear("dt_proj", "ssm_dt", mamba.inner, mamba.step_rank, Bias::kPresent);
    mixer.time_bias = std::exchange(mixer.step_up.bias, {});
    mixer.rate = Transposed(Negated(Table("A_log", "ssm_a", mamba.inner, mamba.state)));
    mixer.skip = Vector("D", "ssm_d", mamba.inner);
    mixer.out = OneLinear("out_proj", "ssm_out", form_.decoder.hidden, mamba.inner, mamba.out_bias);
    mixer.GrowWidths(scope_.widths());
    return mixer;
  }

 private:
  std::string Named(const char* name) const { return fmt::format("{}.{}", form_.names.mamba, name); }

  std::vector<Linear> Rows(const char* name, const char* gguf, std::span<const int64_t> sizes, int64_t in,
                           Bias bias) const {
    return scope_.BindRows({Named(name), gguf}, sizes, in, bias);
  }
  Linear OneLinear(const char* name, const char* gguf, int64_t out, int64_t in, Bias bias) const {
    return scope_.BindLinear({Named(name), gguf}, out, in, bias);
  }
  std::vector<float> Vector(const char* name, const char* gguf, int64_t size) const {
    return scope_.Values({Named(name), gguf}, size);
  }
  std::vector<float> Table(const char* name, const char* gguf, int64_t rows, int64_t columns) const {
    return scope_.Table({Named(name), gguf}, rows, columns);
  }
  // GGUF stores a number per head as a matrix of one column.
  std::vector<float> Column(const char* name, const char* gguf, int64_t size) const {
    return scope_.gguf() ? Table(name, gguf, size, 1) : Vector(name, gguf, size);
  }
  std::vector<float> Taps(int64_t channels) const {
    return scope_.Taps({Named("conv1d"), "ssm_conv1d"}, channels, form_.mamba.kernel);
  }
  std::vector<float> ConvBias(int64_t channels) const {
    return scope_.TapsBias({Named("conv1d"), "ssm_conv1d"}, channels, form_.mamba.conv_bias);
  }
  RmsNorm StepNorm(const char* name, const char* gguf, int64_t size) const {
    const MambaForm& mamba = form_.mamba;
    RmsNorm norm{.weight = {}, .eps = mamba.step_norm_eps};
    if (mamba.step_norms == MambaForm::StepNorms::kWeighted)
      norm.weight = scope_.Norm({Named(name), gguf}, size);
    if (mamba.step_norms == MambaForm::StepNorms::kPlain) norm.weight.assign(static_cast<size_t>(size), 1.0F);
    return norm;
  }
  // GGUF has -exp(A_log) in place of A_log.
  std::vector<float> Negated(std::vector<float> logs) const {
    if (!scope_.gguf()) {
      for (float& rate : logs) rate = -kernels::Exp(rate);
    }
    return logs;
  }
  std::vector<float> Transposed(const std::vector<float>& by_channel) const {
    const auto inner = static_cast<size_t>(form_.mamba.inner),
               states = static_cast<size_t>(form_.mamba.state);
    std::vector<float> by_state(by_channel.size());
    if (by_channel.size() != inner * states) return by_state;
    for (size_t i = 0; i < inner; ++i) {
      for (size_t n = 0; n < states; ++n) by_state[n * inner + i] = by_channel[i * states + n];
    }
    return by_state;
  }

  // A factor of the input is one of the rows behind it, but for their bias.
  void SetScales(Mamba2* mixer) const {
    const MambaForm& mamba = form_.mamba;
    for (Linear* part : {&mixer->z, &mixer->u, &mixer->dt}) {
      for (float& bias : part->bias) bias /= mamba.in_scale;
    }
    mixer->z_scale = mamba.in_scale * mamba.row_scales[0];
    mixer->dt_scale = mamba.in_scale * mamba.row_scales[4];
    const auto inner = static_cast<size_t>(mamba.shape.inner());
    const auto b = static_cast<size_t>(mamba.shape.groups * mamba.shape.state);
    std::vector<float> scales(inner, mamba.in_scale * mamba.row_scales[1]);
    scales.resize(inner + b, mamba.in_scale * mamba.row_scales[2]);
    scales.resize(inner + 2 * b, mamba.in_scale * mamba.row_scales[3]);
    if (std::ranges::count(scales, 1.0F) != std::ssize(scales)) mixer->u_scale = std::move(scales);
  }

  const TensorScope& scope_;
  const HybridForm& form_;
};

class HybridDecoder final : public Decoder {
 public:
  HybridDecoder(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind, const HybridForm& form)
      : Decoder(std::move(files), form.decoder), form_(form) {
    embedding_scale_ = form.embedding_scale;
    logit_scale_ = form.logit_scale;
    if (form.rope) rotary_ = RotaryEmbedding(*form.rope);
    BindEmbedding(bind, EmbeddingName(bind, form));
    for (size_t i = 0; i < form.layers.size() && !bind.error(); ++i) {
      blocks_.push_back(BindBlock(bind.Layer(i), form.layers[i], static_cast<int32_t>(i)));
    }
    BindHead(bind, form.names.final_norm);
  }

  void SetContext(int64_t tokens) override { rotary_.SetContext(tokens); }

 private:
  // Some checkpoints of the families with "embeddings" have it in the singular.
  static TensorName EmbeddingName(TensorBinder& bind, const HybridForm& form) {
    const TensorName singular = {"embedding", form.names.embedding.gguf};
    return !bind.Global().gguf() && bind.Global().HasWeight(singular) ? singular : form.names.embedding;
  }

  size_t layers() const override { return blocks_.size(); }

  HybridBlock BindBlock(const TensorScope& scope, const HybridLayer& layer, int32_t index) {
    HybridBlock block;
    if (layer.attends || layer.mamba)
      block.mixer_norm = BindNorm(scope, form_.names.mixer_norm, config().hidden);
    if (layer.mamba) BindMamba(scope, index, &block);
    if (layer.attends) block.attention = BindFormAttention(scope, index);
    if (layer.feed == HybridLayer::Feed::kNone) return block;
    block.feed_norm = BindNorm(scope, form_.names.feed_norm, config().hidden);
    if (layer.feed == HybridLayer::Feed::kExperts) {
      block.feed = BindFormExperts(scope);
    } else if (form_.decoder.plain_activation) {
      block.feed =
          BindPlainMlp(scope, form_.feed_forward, form_.names.mlp.up, form_.names.mlp.down, form_.mlp_bias);
    } else {
      GatedMlp mlp = BindMlp(scope, form_.feed_forward, form_.names.mlp, form_.mlp_bias);
      mlp.gate_scale = form_.mlp_gate;
      block.feed = std::move(mlp);
    }
    return block;
  }

  void BindMamba(const TensorScope& scope, int32_t index, HybridBlock* block) {
    const MambaBinder bind(scope, form_);
    const auto add = [&](auto mixer) {
      mixer.recurrent_layer = AddStateSpace(mixer.state(), index);
      block->mamba = std::move(mixer);
    };
    if (form_.mamba.selective) {
      add(bind.BindSelective());
    } else {
      add(bind.BindSsd());
    }
  }

  Attention BindFormAttention(const TensorScope& scope, int32_t index) {
    const DecoderConfig& decoder = form_.decoder;
    Attention attention = BindAttention(scope,
                                        {.heads = decoder.heads,
                                         .kv_heads = decoder.kv_heads,
                                         .head_dim = decoder.head_dim,
                                         .bias = form_.attention_bias,
                                         .out_bias = form_.attention_out_bias,
                                         .decoder_layer = index},
                                        form_.rope ? &rotary_ : nullptr, form_.names.attention);
    attention.scale = form_.attention_scale;
    attention.key_scale = form_.key_scale;
    return attention;
  }

  MixtureOfExperts BindFormExperts(const TensorScope& scope) const {
    const MixtureConfig& mixture = form_.mixture.config;
    const int64_t hidden = config().hidden, latent = form_.latent > 0 ? form_.latent : hidden;
    MixtureOfExperts moe = BindRouter(scope, hidden, mixture, form_.mixture.names);
    BindExperts(scope, form_.mixture.names.experts, mixture.experts, latent, mixture.width, &moe);
    if (form_.latent > 0) {
      RowWidths::Grow(scope.widths().shared, latent);
      moe.latent_in =
          scope.BindLinear({"mixer.fc1_latent_proj", "ffn_latent_down"}, latent, hidden, form_.mlp_bias);
      moe.latent_out =
          scope.BindLinear({"mixer.fc2_latent_proj", "ffn_latent_up"}, hidden, latent, form_.mlp_bias);
    }
    if (mixture.shared_width == 0) return moe;
    RowWidths::Grow(scope.widths().shared, config().hidden);
    const MlpNames& names = form_.mixture.names.shared;
    if (form_.mixture.names.experts.plain) {
      moe.plain_shared = BindPlainMlp(scope, mixture.shared_width, names.up, names.down, form_.mlp_bias);
    } else {
      moe.shared = BindMlp(scope, mixture.shared_width, names);
    }
    return moe;
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override {
    if (form_.rope) rotary_.Prepare(ctx);
  }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const HybridBlock& block = blocks_[layer];
    const std::span<float> normed = ctx.work.normed.Get(static_cast<int64_t>(h.size()));
    const auto add = [&](const auto& part, float scale) {
      const std::span<float> mixed = ctx.work.mixed.Get(static_cast<int64_t>(h.size()));
      part.Run(ctx, normed, mixed);
      scale *= form_.residual_scale;
      if (scale != 1) kernels::Scale(ctx.pool, scale, mixed);
      kernels::Add(ctx.pool, mixed, h);
    };
    if (block.mixer_norm) block.mixer_norm.Run(ctx.pool, h, normed);
    VisitPart(block.mamba, [&](const auto& mamba) { add(mamba, form_.mamba_out); });
    if (block.attention) {
      if (form_.attention_in != 1) kernels::Scale(ctx.pool, form_.attention_in, normed);
      add(*block.attention, form_.attention_out);
    }
    if (!block.has_feed()) return;
    block.feed_norm.Run(ctx.pool, h, normed);
    VisitPart(block.feed, [&](const auto& feed) { add(feed, form_.mlp_out); });
  }

  void ReplayLayer(size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens,
                   ThreadPool& pool) override {
    VisitPart(blocks_[layer].mamba,
              [&](const auto& mamba) { mamba.Replay(layout(), pool, slot, inputs, tokens); });
  }

  const HybridForm form_;
  RotaryEmbedding rotary_;
  std::vector<HybridBlock> blocks_;
};

}  // namespace

Mamba2 BindMamba2(const TensorScope& scope, const HybridForm& form) {
  return MambaBinder(scope, form).BindSsd();
}

api::Result<std::unique_ptr<Model>> BuildHybrid(ConfigReader& read,
                                                std::shared_ptr<const weights::ModelFiles> files,
                                                const HybridForm& form) {
  return BuildModel<HybridDecoder>(read, std::move(files), form);
}

}  // namespace quire::runner::models
