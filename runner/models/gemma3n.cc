#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <utility>
#include <vector>

#include "runner/kernels/attention.h"
#include "runner/kernels/elementwise.h"
#include "runner/kernels/state_space.h"
#include "runner/models/altup.h"
#include "runner/models/decoder.h"
#include "runner/models/families.h"
#include "runner/models/per_layer_inputs.h"
#include "runner/models/rope.h"

namespace quire::runner::models {
namespace {

struct Gemma3nConfig {
  DecoderConfig decoder;
  std::vector<int32_t> windows;       // [layers], 0 = full attention
  std::vector<int64_t> feed_forward;  // [layers]
  // [layers]: gates below mean + cutoff * deviation of their row count as 0; not a number: none does.
  std::vector<double> cutoffs;
  RopeSpec sliding_rope, full_rope;
  int32_t own_layers = 0;  // the layers behind these use the keys of the last one of their kind
  int32_t laurel_rank = 0;
  AltUpShape altup;
  bool scaled_results = true;  // what per-layer inputs gate is scaled
  int32_t per_layer_width = 0, per_layer_vocab = 0;
  Bias attention_bias = Bias::kAbsent;
  float logit_cap = 0;
};

// x is the active stream as predicted, n = attention_norm(x).
//   y = x + post_attention_norm(attention(n))
//   z = (y + n + laurel_norm(laurel_right(laurel_left(n)))) / sqrt(2)
//   result = z + post_mlp_norm(mlp(mlp_norm(z))), which corrects all streams
//   streams but the first += per_layer_norm(per_layer_out(gelu(per_layer_gate(scale * active)) * per_layer))
struct Gemma3nBlock {
  AltUp altup;
  RmsNorm attention_norm, post_attention_norm, mlp_norm, post_mlp_norm, laurel_norm, per_layer_norm;
  Attention attention;
  Linear laurel_left, laurel_right;
  Linear gate, up, down;
  Linear per_layer_gate, per_layer_out;
  std::vector<float> result_scale;  // [hidden], or empty
  double cutoff = 0;
};

// x = max(x - (mean + cutoff * deviation), 0), row by row.
void CutGates(ForwardContext& ctx, double cutoff, size_t width, std::span<float> x) {
  constexpr size_t kRowsPerTask = 4;
  const size_t rows = x.size() / width;
  ctx.pool.ParallelFor((rows + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task) {
    for (size_t row = task * kRowsPerTask; row < std::min(rows, (task + 1) * kRowsPerTask); ++row) {
      const std::span<float> own = x.subspan(row * width, width);
      double sum = 0, squares = 0;
      for (const float value : own) sum += value;
      const double mean = sum / static_cast<double>(width);
      for (const float value : own) squares += (value - mean) * (value - mean);
      const double deviation = std::sqrt(squares / static_cast<double>(width));
      const auto least = static_cast<float>(mean + deviation * cutoff);
      for (float& value : own) value = std::max(value - least, 0.0F);
    }
  });
}

class Gemma3n final : public Decoder {
 public:
  Gemma3n(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind, const Gemma3nConfig& config)
      : Decoder(std::move(files), config.decoder),
        config_(config),
        sliding_rotary_(config.sliding_rope),
        full_rotary_(config.full_rope) {
    embedding_scale_ = static_cast<float>(std::sqrt(static_cast<double>(config.decoder.hidden)));
    logit_cap_ = config.logit_cap;
    BindEmbedding(bind);
    const TensorScope scope = bind.Global();
    ends_ = BindAltUpEnds(scope, config.altup);
    inputs_.layers = config.decoder.layers;
    inputs_.width = config.per_layer_width;
    inputs_.Bind(scope, scope.gguf() ? config.decoder.vocab : config.per_layer_vocab, config.decoder.hidden,
                 config.decoder.norm_eps);
    for (size_t i = 0; i < config.windows.size() && !bind.error(); ++i) {
      blocks_.push_back(BindBlock(bind.Layer(i), i));
    }
    BindHead(bind);
  }

 private:
  size_t layers() const override { return blocks_.size(); }

  RmsNorm BindHidden(const TensorScope& scope, TensorName name) const {
    return BindNorm(scope, name, config_.decoder.hidden);
  }

  Gemma3nBlock BindBlock(const TensorScope& scope, size_t layer) {
    const int64_t hidden = config_.decoder.hidden, width = config_.feed_forward[layer];
    Gemma3nBlock block;
    block.altup = BindAltUp(scope, config_.altup, config_.decoder.norm_eps);
    block.attention_norm = BindHidden(scope, {"input_layernorm", "attn_norm"});
    block.post_attention_norm = BindHidden(scope, {"post_attention_layernorm", "post_attention_norm"});
    block.mlp_norm = BindHidden(scope, {"pre_feedforward_layernorm", "ffn_norm"});
    block.post_mlp_norm = BindHidden(scope, {"post_feedforward_layernorm", "post_ffw_norm"});
    block.laurel_norm = BindHidden(scope, {"laurel.post_laurel_norm", "laurel_post_norm"});
    block.per_layer_norm = BindHidden(scope, {"post_per_layer_input_norm", "post_norm"});
    block.attention = BindSharedAttention(scope, layer);
    block.laurel_left = scope.BindLinear({"laurel.linear_left", "laurel_l"}, config_.laurel_rank, hidden);
    block.laurel_right = scope.BindLinear({"laurel.linear_right", "laurel_r"}, hidden, config_.laurel_rank);
    block.gate = scope.BindLinear({"mlp.gate_proj", "ffn_gate"}, width, hidden);
    block.up = scope.BindLinear({"mlp.up_proj", "ffn_up"}, width, hidden);
    block.down = scope.BindLinear({"mlp.down_proj", "ffn_down"}, hidden, width);
    block.per_layer_gate =
        scope.BindLinear({"per_layer_input_gate", "inp_gate"}, config_.per_layer_width, hidden);
    block.per_layer_out = scope.BindLinear({"per_layer_projection", "proj"}, hidden, config_.per_layer_width);
    block.cutoff = config_.cutoffs[layer];
    if (config_.scaled_results) {
      block.result_scale = scope.Values({"altup.correct_output_scale", "altup_correct_scale.weight"}, hidden);
    }
    RowWidths& widths = scope.widths();
    RowWidths::Grow(widths.ff, std::max<int64_t>(width, config_.per_layer_width));
    RowWidths::Grow(widths.shared, hidden);
    RowWidths::Grow(widths.outputs, hidden);
    RowWidths::Grow(widths.scores, config_.laurel_rank);
    return block;
  }

  // Layers behind the first `own_layers` have no keys.
  Attention BindSharedAttention(const TensorScope& scope, size_t layer) {
    const DecoderConfig& decoder = config_.decoder;
    const bool slides = config_.windows[layer] > 0;
    const RotaryEmbedding* const rotary = slides ? &sliding_rotary_ : &full_rotary_;
    const auto own = static_cast<size_t>(config_.own_layers);
    if (layer < own) {
      Attention attention = BindAttention(scope,
                                          {.heads = decoder.heads,
                                           .kv_heads = decoder.kv_heads,
                                           .head_dim = decoder.head_dim,
                                           .window = config_.windows[layer],
                                           .qk_norm = QkNorm::kHeads,
                                           .bias = config_.attention_bias,
                                           .out_bias = config_.attention_bias},
                                          rotary);
      attention.v_norm = {.weight = std::vector<float>(static_cast<size_t>(decoder.head_dim), 1.0F),
                          .eps = decoder.norm_eps};
      attention.scale = 1;
      return attention;
    }
    const int64_t queries = int64_t{decoder.heads} * decoder.head_dim;
    Attention attention;
    attention.q =
        scope.BindLinear({"self_attn.q_proj", "attn_q"}, queries, decoder.hidden, config_.attention_bias);
    attention.q_norm = BindNorm(scope, {"self_attn.q_norm", "attn_q_norm"}, decoder.head_dim);
    attention.out = scope.BindLinear({"self_attn.o_proj", "attn_output"}, decoder.hidden, queries,
                                     config_.attention_bias);
    attention.rotary = rotary;
    attention.heads = decoder.heads;
    attention.head_dim = decoder.head_dim;
    attention.scale = 1;
    size_t source = own - 1;
    while (config_.windows[source] != config_.windows[layer]) --source;
    attention.binding = blocks_[source].attention.binding;
    AddSharing(attention.binding);
    return attention;
  }

  std::span<float> Streams(ForwardContext& ctx) const {
    return ctx.work.altup.Get(config_.altup.streams * ctx.rows() * config_.altup.hidden);
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float> h) override {
    sliding_rotary_.Prepare(ctx);
    full_rotary_.Prepare(ctx);
    inputs_.Run(ctx, h);
    ends_.Split(ctx, h, Streams(ctx));
  }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const Gemma3nBlock& block = blocks_[layer];
    const std::span<float> streams = Streams(ctx);
    block.altup.Predict(ctx, streams);
    const auto active = static_cast<size_t>(config_.altup.active) * h.size();
    const std::span<float> result = RunBlock(ctx, block, streams.subspan(active, h.size()));
    block.altup.Correct(ctx, result, streams);
    AddPerLayerInput(ctx, block, inputs_.Rows(ctx, layer), streams.subspan(active, h.size()), streams);
    if (layer + 1 == blocks_.size()) ends_.Join(ctx, streams, h);
  }

  // In ctx.work.outputs.
  std::span<float> RunBlock(ForwardContext& ctx, const Gemma3nBlock& block, std::span<const float> x) const {
    const auto size = static_cast<int64_t>(x.size());
    const std::span<float> normed = ctx.work.normed.Get(size), mixed = ctx.work.mixed.Get(size);
    const std::span<float> laurel = ctx.work.shared.Get(size), z = ctx.work.outputs.Get(size);
    block.attention_norm.Run(ctx.pool, x, normed);
    const std::span<float> low = ctx.work.scores.Get(ctx.rows() * config_.laurel_rank);
    block.laurel_left.Run(ctx.pool, ctx.Input(normed), low);
    block.laurel_right.Run(ctx.pool, ctx.Input(low), laurel);
    block.laurel_norm.Run(ctx.pool, laurel, laurel);
    kernels::Add(ctx.pool, normed, laurel);
    block.attention.Run(ctx, normed, z);
    block.post_attention_norm.Run(ctx.pool, z, z);
    kernels::Add(ctx.pool, x, z);
    kernels::Add(ctx.pool, laurel, z);
    kernels::Scale(ctx.pool, static_cast<float>(1 / std::numbers::sqrt2), z);
    block.mlp_norm.Run(ctx.pool, z, normed);
    RunMlp(ctx, block, normed, mixed);
    block.post_mlp_norm.Run(ctx.pool, mixed, mixed);
    kernels::Add(ctx.pool, mixed, z);
    return z;
  }

  void RunMlp(ForwardContext& ctx, const Gemma3nBlock& block, std::span<const float> x,
              std::span<float> y) const {
    const int64_t width = block.gate.weight.out;
    const std::span<float> gated = ctx.work.gate.Get(ctx.rows() * width);
    const std::span<float> wide = ctx.work.up.Get(ctx.rows() * width);
    RunTogether(ctx.pool, ctx.Input(x), {{&block.gate, gated}, {&block.up, wide}});
    if (!std::isnan(block.cutoff)) CutGates(ctx, block.cutoff, static_cast<size_t>(width), gated);
    kernels::GeluMul(ctx.pool, wide, gated);
    block.down.Run(ctx.pool, ctx.Input(gated), y);
  }

  void AddPerLayerInput(ForwardContext& ctx, const Gemma3nBlock& block, std::span<const float> input,
                        std::span<const float> active, std::span<float> streams) const {
    const auto size = static_cast<int64_t>(active.size());
    const std::span<float> scaled = ctx.work.normed.Get(size), mixed = ctx.work.mixed.Get(size);
    std::ranges::copy(active, scaled.begin());
    if (!block.result_scale.empty()) kernels::ScaleColumns(ctx.pool, block.result_scale, scaled);
    const std::span<float> gate = ctx.work.gate.Get(static_cast<int64_t>(input.size()));
    block.per_layer_gate.Run(ctx.pool, ctx.Input(scaled), gate);
    kernels::GeluMul(ctx.pool, input, gate);
    block.per_layer_out.Run(ctx.pool, ctx.Input(gate), mixed);
    block.per_layer_norm.Run(ctx.pool, mixed, mixed);
    for (size_t i = 1; i < static_cast<size_t>(config_.altup.streams); ++i) {
      kernels::Add(ctx.pool, mixed, streams.subspan(i * active.size(), active.size()));
    }
  }

  const Gemma3nConfig config_;
  AltUpEnds ends_;
  PerLayerInputs inputs_;
  RotaryEmbedding sliding_rotary_, full_rotary_;
  std::vector<Gemma3nBlock> blocks_;
};

// x with a share `below` of the normal distribution below it.
double NormalQuantile(double below) {
  double low = -40, high = 40;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::numbers::sqrt2) < below ? low : high) = middle;
  }
  return (low + high) / 2;
}

// Shares of the gates that are cut off; GGUF files have their quantiles, minus infinity for none. Without
// either, 95 % in the first 10 layers of more.
void ReadCutoffs(ConfigReader& read, Gemma3nConfig* config) {
  constexpr ConfigKey kShares = {"activation_sparsity_pattern", "activation_sparsity_scale"};
  const auto layers = static_cast<size_t>(config->decoder.layers);
  config->cutoffs.assign(layers, std::nan(""));
  const auto* const list = read.Find(kShares);
  if (list == nullptr) {
    const size_t cut = layers > 10 ? 10 : 0;
    std::fill_n(config->cutoffs.begin(), cut, NormalQuantile(0.95));
    return;
  }
  const bool single = list->is_number();
  if (!single && (!list->is_array() || list->size() != layers)) {
    return read.Fail(read.Name(kShares) + " is not a list of one number per layer");
  }
  for (size_t i = 0; i < layers; ++i) {
    const auto& entry = single ? *list : (*list)[i];
    const double value = entry.is_number() ? entry.get<double>() : read.gguf() ? -INFINITY : -1;
    if (read.gguf()) {
      if (value > -1e3) config->cutoffs[i] = value;
      continue;
    }
    if (!(value >= 0 && value < 1)) return read.Fail(read.Name(kShares) + " has an entry outside [0, 1)");
    if (value > 0) config->cutoffs[i] = NormalQuantile(value);
  }
}

void ReadSharing(ConfigReader& read, Gemma3nConfig* config) {
  const int32_t layers = config->decoder.layers;
  // llama.cpp's own number: the first 20 layers have keys.
  const int32_t given = read.gguf() ? std::max(layers - 20, 0) : std::min(15, layers - 1);
  config->own_layers =
      layers - read.Small({"num_kv_shared_layers", "attention.shared_kv_layers"}, 0, layers - 1, given);
  const auto own = config->windows.begin() + config->own_layers;
  for (auto layer = own; layer != config->windows.end(); ++layer) {
    if (std::find(config->windows.begin(), own, *layer) == own) {
      return read.Fail("num_kv_shared_layers: no earlier layer of the type has keys");
    }
  }
}

Gemma3nConfig ReadGemma3n(ConfigReader& read) {
  Gemma3nConfig config;
  config.decoder = ReadDecoderConfig(read,
                                     {.head_dim = read.gguf() ? 0 : 256,
                                      .context = 32768,
                                      .norm_eps = 1e-6F,
                                      .activation = Activation::kGelu},
                                     TiedByDefault::kYes);
  const DecoderConfig& decoder = config.decoder;
  if (decoder.activation != Activation::kGelu) read.Fail("hidden_activation is not a gelu");
  config.windows = ReadWindows(
      read, decoder.layers, [](int32_t layer, int32_t every) { return (layer + 1) % every != 0; }, 5, 512);
  config.feed_forward =
      read.Integers({"intermediate_size", "feed_forward_length"}, decoder.layers, 1, kMaxWidth);
  ReadCutoffs(read, &config);
  ReadSharing(read, &config);
  const auto rope = [&](std::string_view type, ConfigKey theta, double base, bool scaled) {
    return ReadRope(read, {.head_dim = decoder.head_dim,
                           .layer_type = type,
                           .theta = theta,
                           .default_theta = base,
                           .scaled = scaled});
  };
  config.full_rope = rope("full_attention", {"rope_theta", "rope.freq_base"}, 1e6, true);
  config.sliding_rope =
      rope("sliding_attention", {"rope_local_base_freq", "rope.freq_base_swa"}, 10000, false);
  config.altup = {.streams = read.Small({"altup_num_inputs", "altup.num_inputs"}, 2, 64, 4),
                  .hidden = decoder.hidden,
                  .active = 0};
  config.altup.active = read.Small({"altup_active_idx", "altup.active_idx"}, 0,
                                   static_cast<int32_t>(config.altup.streams) - 1, 0);
  config.scaled_results = read.Boolean({"altup_correct_scale", ""}, true);
  config.laurel_rank = read.Small({"laurel_rank", ""}, 1, kMaxWidth, 64);
  if (const auto* left = read.files().Find("blk.0.laurel_l.weight"); left != nullptr && read.gguf()) {
    config.laurel_rank = static_cast<int32_t>(std::clamp<int64_t>(left->rows(), 1, kMaxWidth));
  }
  config.per_layer_width =
      read.Small({"hidden_size_per_layer_input", "embedding_length_per_layer_input"}, 1, kMaxWidth, 256);
  config.per_layer_vocab = read.Small({"vocab_size_per_layer_input", ""}, 1, kMaxVocab, 262144);
  config.attention_bias = read.gguf()                                   ? Bias::kIfStored
                          : read.Boolean({"attention_bias", ""}, false) ? Bias::kPresent
                                                                        : Bias::kAbsent;
  constexpr ConfigKey kCap = {"final_logit_softcapping", "final_logit_softcapping"};
  config.logit_cap = read.SaysNull(kCap.hugging_face) ? 0 : static_cast<float>(read.Positive(kCap, 1e6, 30));
  read.Ignore({"altup_coef_clip", "altup_lr_multiplier", "query_pre_attn_scalar"});  // for training
  read.Require("use_bidirectional_attention", false);
  return config;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadGemma3n(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const Gemma3nConfig config = ReadGemma3n(read);
  return BuildModel<Gemma3n>(read, std::move(files), config);
}

}  // namespace quire::runner::models
