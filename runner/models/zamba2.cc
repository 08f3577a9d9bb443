#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "runner/kernels/elementwise.h"
#include "runner/models/decoder.h"
#include "runner/models/families.h"
#include "runner/models/hybrid_config.h"
#include "runner/models/low_rank.h"

namespace quire::runner::models {
namespace {

constexpr float kGatedNormEps = 1e-5F;  // whatever rms_norm_eps says

struct Zamba2Config {
  HybridForm form;                // of layers with a state space alone
  std::vector<bool> hybrid = {};  // [layers]: those with a shared block before their state space
  int32_t shared_blocks = 1;      // the n-th hybrid layer uses block n % shared_blocks
  int32_t rank = 0;               // of the adapters
  bool attention_adapters = false;
  Bias bias = Bias::kAbsent;  // of feed-forward layers
};

// One use of a shared block: its weights are those of the other uses but for the adapters and the last
// projection. Each use has keys and values of its own.
//   t = linear(mlp(norm(attention(norm(h, e)))))     e: the embedded tokens
struct SharedUse {
  RmsNorm norm, mlp_norm;
  Attention attention;
  GatedMlp mlp;
  Linear linear;
};

// h += mamba(norm(h + t)), t = 0 without a shared block.
struct Zamba2Block {
  std::optional<SharedUse> shared;
  RmsNorm norm;
  Mamba2 mamba;
};

class Zamba2 final : public Decoder {
 public:
  Zamba2(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind, const Zamba2Config& config)
      : Decoder(std::move(files), config.form.decoder), config_(config) {
    if (config.form.rope) rotary_ = RotaryEmbedding(*config.form.rope);
    BindEmbedding(bind);
    RowWidths::Grow(bind.widths().per_layer, 2 * int64_t{config.form.decoder.hidden});
    size_t use = 0;
    for (size_t i = 0; i < config.hybrid.size() && !bind.error(); ++i) {
      Zamba2Block block;
      if (config.hybrid[i]) block.shared = BindUse(bind, i, use++);
      const TensorScope scope = bind.Layer(i);
      HybridForm form = config.form;
      if (config.hybrid[i]) form.names.mamba = "mamba_decoder.mamba";
      block.norm =
          BindNorm(scope, {config.hybrid[i] ? "mamba_decoder.input_layernorm" : "input_layernorm", ""},
                   form.decoder.hidden);
      block.mamba = BindMamba2(scope, form);
      block.mamba.recurrent_layer = AddStateSpace(block.mamba.state(), static_cast<int32_t>(i));
      blocks_.push_back(std::move(block));
    }
    BindHead(bind, {"final_layernorm", ""});
  }

  void SetContext(int64_t tokens) override { rotary_.SetContext(tokens); }

 private:
  size_t layers() const override { return blocks_.size(); }

  // The layer that stores a tensor of the block of the use-th hybrid layer: that layer itself, where a
  // checkpoint shares nothing, or any that uses the block, the first by default.
  size_t StoringLayer(TensorBinder& bind, size_t use, const std::string& name) const {
    const auto blocks = static_cast<size_t>(config_.shared_blocks);
    std::vector<size_t> users;  // layers, by their use
    users.reserve(config_.hybrid.size());
    for (size_t layer = 0; layer < config_.hybrid.size(); ++layer) {
      if (config_.hybrid[layer]) users.push_back(layer);
    }
    const auto stores = [&](size_t layer) { return bind.Layer(layer).HasWeight({name, ""}); };
    if (stores(users[use])) return users[use];
    for (size_t other = use % blocks; other < users.size(); other += blocks) {
      if (stores(users[other])) return users[other];
    }
    return users[use % blocks];
  }

  // The adapter of one use, the rows of its second matrix apart.
  std::vector<LowRank> BindAdapter(TensorBinder& bind, size_t use, const char* part,
                                   std::span<const int64_t> sizes, int64_t in) const {
    const std::string name = fmt::format("shared_transformer.{}.{}", part, use);
    const std::string down = name + ".0", up = name + ".1";
    const TensorScope scope = bind.Layer(StoringLayer(bind, use, down));
    const Linear first = scope.BindLinear({down, ""}, config_.rank, in);
    std::vector<LowRank> parts;
    parts.reserve(sizes.size());
    for (Linear& second : scope.BindRows({up, ""}, sizes, config_.rank)) {
      parts.push_back({.down = first, .up = std::move(second)});
    }
    LowRank::GrowWidths(scope.widths(), config_.rank, *std::ranges::max_element(sizes));
    return parts;
  }

  // What all uses of a block have alike, bound once for each layer that stores it.
  const SharedUse& BindShared(TensorBinder& bind, size_t stored) {
    const auto found = shared_.find(stored);
    if (found != shared_.end()) return found->second;
    const DecoderConfig& decoder = config_.form.decoder;
    const TensorScope scope = bind.Layer(stored);
    const int64_t hidden = decoder.hidden, in = 2 * hidden;
    const int64_t queries = int64_t{decoder.heads} * decoder.head_dim;
    const int64_t keys = int64_t{decoder.kv_heads} * decoder.head_dim;
    SharedUse shared;
    shared.norm = BindNorm(scope, {"shared_transformer.input_layernorm", ""}, 2 * decoder.hidden);
    shared.mlp_norm = BindNorm(scope, {"shared_transformer.pre_ff_layernorm", ""}, decoder.hidden);
    Attention& attention = shared.attention;
    attention.q = scope.BindLinear({"shared_transformer.self_attn.q_proj", ""}, queries, in);
    attention.k = scope.BindLinear({"shared_transformer.self_attn.k_proj", ""}, keys, in);
    attention.v = scope.BindLinear({"shared_transformer.self_attn.v_proj", ""}, keys, in);
    attention.out = scope.BindLinear({"shared_transformer.self_attn.o_proj", ""}, hidden, queries);
    attention.rotary = config_.form.rope ? &rotary_ : nullptr;
    attention.heads = decoder.heads;
    attention.head_dim = decoder.head_dim;
    attention.scale = static_cast<float>(1 / std::sqrt(decoder.head_dim / 2.0));
    scope.widths().GrowAttention(queries, keys, decoder.head_dim, false);
    shared.mlp = BindMlp(scope, config_.form.feed_forward,
                         {.gate = {},
                          .up = {},
                          .down = {"shared_transformer.feed_forward.down_proj", ""},
                          .gate_up = {"shared_transformer.feed_forward.gate_up_proj", ""}},
                         config_.bias);
    return shared_.emplace(stored, std::move(shared)).first->second;
  }

  SharedUse BindUse(TensorBinder& bind, size_t layer, size_t use) {
    const DecoderConfig& decoder = config_.form.decoder;
    const int64_t hidden = decoder.hidden, width = config_.form.feed_forward;
    SharedUse shared = BindShared(bind, StoringLayer(bind, use, "shared_transformer.input_layernorm"));
    Attention& attention = shared.attention;
    if (config_.attention_adapters) {
      const auto adapter = [&](const char* name, int64_t heads) {
        const int64_t sizes[] = {heads * decoder.head_dim};
        return std::move(BindAdapter(bind, use, name, sizes, 2 * hidden).front());
      };
      attention.q_adapter = adapter("self_attn.linear_q_adapter_list", decoder.heads);
      attention.k_adapter = adapter("self_attn.linear_k_adapter_list", decoder.kv_heads);
      attention.v_adapter = adapter("self_attn.linear_v_adapter_list", decoder.kv_heads);
    }
    attention.binding = AddAttention({.kv_heads = decoder.kv_heads, .head_dim = decoder.head_dim},
                                     attention.rotary, static_cast<int32_t>(layer));
    const int64_t halves[] = {width, width};
    std::vector<LowRank> adapters =
        BindAdapter(bind, use, "feed_forward.gate_up_proj_adapter_list", halves, hidden);
    shared.mlp.gate_adapter = std::move(adapters[0]);
    shared.mlp.up_adapter = std::move(adapters[1]);
    shared.linear = bind.Layer(layer).BindLinear({"linear", ""}, hidden, hidden);
    return shared;
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float> h) override {
    if (config_.form.rope) rotary_.Prepare(ctx);
    std::ranges::copy(h, ctx.work.per_layer.Get(static_cast<int64_t>(h.size())).begin());
  }

  // What the shared block adds to the input of the state space, in ctx.work.mixed.
  std::span<float> RunShared(ForwardContext& ctx, const SharedUse& shared, std::span<const float> h) const {
    const auto width = static_cast<size_t>(config().hidden), rows = static_cast<size_t>(ctx.rows());
    const std::span<const float> embedded = ctx.work.per_layer.Get(static_cast<int64_t>(h.size()));
    const std::span<float> both = ctx.work.per_layer_context.Get(2 * static_cast<int64_t>(h.size()));
    for (size_t row = 0; row < rows; ++row) {
      std::ranges::copy(h.subspan(row * width, width), both.subspan(2 * row * width).begin());
      std::ranges::copy(embedded.subspan(row * width, width), both.subspan((2 * row + 1) * width).begin());
    }
    const std::span<float> mixed = ctx.work.mixed.Get(static_cast<int64_t>(h.size()));
    const std::span<float> normed = ctx.work.normed.Get(static_cast<int64_t>(h.size()));
    shared.norm.Run(ctx.pool, both, both);
    shared.attention.Run(ctx, both, mixed);
    shared.mlp_norm.Run(ctx.pool, mixed, mixed);
    shared.mlp.Run(ctx, mixed, normed);
    shared.linear.Run(ctx.pool, ctx.Input(normed), mixed);
    return mixed;
  }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const Zamba2Block& block = blocks_[layer];
    const std::span<float> normed = ctx.work.normed.Get(static_cast<int64_t>(h.size()));
    if (block.shared) {
      const std::span<float> mixed = RunShared(ctx, *block.shared, h);
      kernels::Add(ctx.pool, h, mixed);
      block.norm.Run(ctx.pool, mixed, normed);
    } else {
      block.norm.Run(ctx.pool, h, normed);
    }
    const std::span<float> mixed = ctx.work.mixed.Get(static_cast<int64_t>(h.size()));
    block.mamba.Run(ctx, normed, mixed);
    kernels::Add(ctx.pool, mixed, h);
  }

  void ReplayLayer(size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens,
                   ThreadPool& pool) override {
    blocks_[layer].mamba.Replay(layout(), pool, slot, inputs, tokens);
  }

  const Zamba2Config config_;
  RotaryEmbedding rotary_;
  std::map<size_t, SharedUse> shared_;  // by the layer that stores them
  std::vector<Zamba2Block> blocks_;
};

void ReadZamba2Mamba(ConfigReader& read, Zamba2Config* config) {
  HybridForm& form = config->form;
  form.mamba = ReadMamba2(read,
                          {.heads = "n_mamba_heads",
                           .head_dim = nullptr,
                           .groups = "mamba_ngroups",
                           .state = "mamba_d_state",
                           .kernel = "mamba_d_conv",
                           .expand = "mamba_expand",
                           .in_bias = "add_bias_linear",
                           .conv_bias = "use_conv_bias",
                           .out_bias = "add_bias_linear"},
                          form.decoder.hidden);
  form.mamba.conv_bias = Bias::kPresent;  // whatever the key says
  form.mamba.norm_groups = static_cast<int32_t>(form.mamba.shape.groups);
  form.mamba.norm_eps = kGatedNormEps;
  // In the published kernels, prefill applies limits and decoding does not.
  if (form.mamba.step_low > 0 || std::isfinite(form.mamba.step_high)) {
    read.Fail("time_step_limit: only no limit is supported");
  }
}

void ReadZamba2Attention(ConfigReader& read, DecoderConfig* decoder) {
  const int64_t width = 2 * int64_t{decoder->hidden};
  if (width % decoder->heads != 0) read.Fail("num_attention_heads does not divide twice the hidden size");
  decoder->head_dim = static_cast<int32_t>(width / decoder->heads);
  decoder->kv_heads = read.Small({"num_key_value_heads", ""}, 1, kMaxHeads, decoder->heads);
  CheckHeads(read, decoder->heads, decoder->kv_heads, decoder->head_dim);
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadZamba2(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  Zamba2Config config{.form = {.decoder = ReadDecoderConfig(read,
                                                            {.kv_heads = -1,
                                                             .head_dim = -1,
                                                             .context = 4096,
                                                             .norm_eps = 1e-5F,
                                                             .activation = Activation::kGeluErf},
                                                            TiedByDefault::kYes)}};
  HybridForm& form = config.form;
  ReadZamba2Attention(read, &form.decoder);
  ReadZamba2Mamba(read, &config);
  form.feed_forward =
      read.Small({"intermediate_size|ffn_hidden_size", ""}, 1, kMaxWidth, 4 * int64_t{form.decoder.hidden});
  constexpr ConfigKey kTypes = {"layers_block_type|layer_types", ""};
  const auto hybrid = read.Kinds(kTypes, form.decoder.layers, "hybrid", "mamba");
  if (!hybrid) read.Fail("the configuration lacks layers_block_type");
  config.hybrid = hybrid.value_or(std::vector<bool>(static_cast<size_t>(form.decoder.layers)));
  config.shared_blocks = read.Small({"num_mem_blocks", ""}, 1, kMaxLayers, 1);
  config.rank = read.Small({"adapter_rank", ""}, 1, kMaxWidth, 128);
  config.attention_adapters = read.Boolean({"use_shared_attention_adapter", ""}, false);
  config.bias = read.Boolean({"add_bias_linear", ""}, false) ? Bias::kPresent : Bias::kAbsent;
  if (read.Boolean({"use_mem_rope", ""}, false)) {
    form.rope = ReadRope(read, {.head_dim = form.decoder.head_dim, .default_theta = 10000});
  }
  // Implementations differ on the rotation of a long context.
  read.Require("use_long_context", false);
  read.Require("gated_linear_unit", true);
  read.Require("use_shared_mlp_adapter", true);
  // Derived, or of initialization and speed alone.
  read.Ignore({"attention_hidden_size", "attention_head_dim", "head_dim", "mamba_headdim", "kv_channels",
               "num_query_groups", "hybrid_layer_ids", "time_step_min", "time_step_max", "time_step_floor",
               "chunk_size", "use_mamba_kernels", "use_mem_eff_path", "rope_parameters", "rope_theta",
               "rope_scaling"});
  return BuildModel<Zamba2>(read, std::move(files), config);
}

}  // namespace quire::runner::models
