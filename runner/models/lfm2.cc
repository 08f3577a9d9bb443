#include "runner/models/lfm2.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "runner/kernels/elementwise.h"
#include "runner/models/layers.h"
#include "runner/models/lfm2_config.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {
namespace {

// h += mixer(operator_norm(h)); h += feed_forward(ffn_norm(h)).
struct Block {
  RmsNorm operator_norm;
  std::variant<Attention, ShortConvolution> mixer;
  RmsNorm ffn_norm;
  SwiGlu feed_forward;
};

class Lfm2 final : public Model {
 public:
  Lfm2(std::shared_ptr<const weights::ModelFiles> files, const Lfm2Config& config, TensorBinder& bind);

  const std::string& architecture() const override { return architecture_; }
  int32_t vocab_size() const override { return config_.vocab; }
  int32_t context_length() const override { return config_.context; }
  int64_t parameters() const override { return parameters_; }
  int64_t weight_bytes() const override { return weight_bytes_; }
  const cache::Layout& cache_layout() const override { return layout_; }

  void Forward(const Batch& batch, cache::StepView& step, ThreadPool& pool, std::span<float> logits,
               Probe* probe) override;

 private:
  RmsNorm BindNorm(TensorBinder& bind, const std::string& name, int32_t size) const;
  Attention BindAttention(TensorBinder& bind, size_t layer);
  ShortConvolution BindConvolution(TensorBinder& bind, size_t layer);
  SwiGlu BindFeedForward(TensorBinder& bind, size_t layer) const;
  void BindHead(TensorBinder& bind);

  // Final norm and head for the rows that need logits.
  void Logits(Pass& pass, std::span<const float> h, std::span<float> logits) const;

  std::shared_ptr<const weights::ModelFiles> files_;  // keeps every Matrix below mapped
  const std::string architecture_ = "lfm2";
  Lfm2Config config_;
  cache::Layout layout_;
  int64_t parameters_ = 0;
  int64_t weight_bytes_ = 0;

  kernels::Matrix embedding_;
  RotaryEmbedding rotary_;
  std::vector<Block> blocks_;
  RmsNorm final_norm_;  // published as "embedding_norm", though it comes last
  Linear head_;
  Workspace work_;
};

RmsNorm Lfm2::BindNorm(TensorBinder& bind, const std::string& name, int32_t size) const {
  return {.weight = bind.Vector(name, size), .eps = config_.norm_eps};
}

Attention Lfm2::BindAttention(TensorBinder& bind, size_t layer) {
  const auto name = [&](Lfm2TensorName part) { return LayerTensor(files_->format(), layer, part); };
  const int64_t hidden = config_.hidden, dim = config_.head_dim;
  const int64_t queries = config_.heads * dim, keys = config_.kv_heads * dim;
  return {.q = {bind.Matrix(name({"self_attn.q_proj", "attn_q"}), queries, hidden), {}},
          .k = {bind.Matrix(name({"self_attn.k_proj", "attn_k"}), keys, hidden), {}},
          .v = {bind.Matrix(name({"self_attn.v_proj", "attn_v"}), keys, hidden), {}},
          .out = {bind.Matrix(name({"self_attn.out_proj", "attn_output"}), hidden, queries), {}},
          .q_norm = BindNorm(bind, name({"self_attn.q_layernorm", "attn_q_norm"}), config_.head_dim),
          .k_norm = BindNorm(bind, name({"self_attn.k_layernorm", "attn_k_norm"}), config_.head_dim),
          .rotary = &rotary_,
          .heads = config_.heads,
          .group = 0,
          .layer = layout_.groups[0].layers++};
}

ShortConvolution Lfm2::BindConvolution(TensorBinder& bind, size_t layer) {
  const auto name = [&](Lfm2TensorName part) { return LayerTensor(files_->format(), layer, part); };
  const int64_t hidden = config_.hidden, kernel = config_.conv_kernel;
  ShortConvolution conv{
      .in = {bind.Matrix(name({"conv.in_proj", "shortconv.in_proj"}), 3 * hidden, hidden), {}},
      .out = {bind.Matrix(name({"conv.out_proj", "shortconv.out_proj"}), hidden, hidden), {}},
      .taps = bind.Taps(name({"conv.conv", "shortconv.conv"}), hidden, kernel),
      .bias = {},
      .channels = hidden,
      .kernel = kernel,
      .recurrent_layer = layout_.recurrent.size()};
  if (files_->format() == weights::Format::kHuggingFace) {
    const auto bias = [&](const char* part) {
      return fmt::format("model.layers.{}.conv.{}.bias", layer, part);
    };
    if (config_.conv_bias) {
      conv.in.bias = bind.Vector(bias("in_proj"), 3 * hidden);
      conv.bias = bind.Vector(bias("conv"), hidden);
      conv.out.bias = bind.Vector(bias("out_proj"), hidden);
    } else {
      for (const char* part : {"in_proj", "conv", "out_proj"}) bind.RequireAbsent(bias(part));
    }
  }
  layout_.recurrent.push_back({.conv_tail = config_.conv_kernel - 1, .conv_dim = config_.hidden});
  return conv;
}

SwiGlu Lfm2::BindFeedForward(TensorBinder& bind, size_t layer) const {
  const auto name = [&](Lfm2TensorName part) { return LayerTensor(files_->format(), layer, part); };
  const int64_t hidden = config_.hidden, wide = config_.feed_forward;
  return {.gate = {bind.Matrix(name({"feed_forward.w1", "ffn_gate"}), wide, hidden), {}},
          .up = {bind.Matrix(name({"feed_forward.w3", "ffn_up"}), wide, hidden), {}},
          .down = {bind.Matrix(name({"feed_forward.w2", "ffn_down"}), hidden, wide), {}}};
}

void Lfm2::BindHead(TensorBinder& bind) {
  const bool gguf = files_->format() == weights::Format::kGguf;
  final_norm_ =
      BindNorm(bind, gguf ? "token_embd_norm.weight" : "model.embedding_norm.weight", config_.hidden);
  head_.weight = config_.tied
                     ? embedding_
                     : bind.Matrix(gguf ? "output.weight" : "lm_head.weight", config_.vocab, config_.hidden);
}

Lfm2::Lfm2(std::shared_ptr<const weights::ModelFiles> files, const Lfm2Config& config, TensorBinder& bind)
    : files_(std::move(files)), config_(config), rotary_(config.rope_theta, config.head_dim) {
  const weights::Format format = files_->format();
  embedding_ =
      bind.Matrix(format == weights::Format::kGguf ? "token_embd.weight" : "model.embed_tokens.weight",
                  config_.vocab, config_.hidden);
  if (std::ranges::count(config_.is_attention, true) != 0) {
    layout_.groups.push_back({.kv_heads = config_.kv_heads, .head_dim = config_.head_dim});
  }
  // After the first error there is nothing left to find, however many layers the configuration claims.
  for (size_t layer = 0; layer < config_.is_attention.size() && !bind.error(); ++layer) {
    Block block;
    block.operator_norm =
        BindNorm(bind, LayerTensor(format, layer, {"operator_norm", "attn_norm"}), config_.hidden);
    if (config_.is_attention[layer]) {
      block.mixer = BindAttention(bind, layer);
    } else {
      block.mixer = BindConvolution(bind, layer);
    }
    block.ffn_norm = BindNorm(bind, LayerTensor(format, layer, {"ffn_norm", "ffn_norm"}), config_.hidden);
    block.feed_forward = BindFeedForward(bind, layer);
    blocks_.push_back(std::move(block));
  }
  BindHead(bind);
  parameters_ = bind.parameters();
  weight_bytes_ = bind.bytes();
}

void Report(Probe* probe, const std::string& name, std::span<const float> values, int64_t rows) {
  if (probe != nullptr) probe->Activation(name, values, rows);
}

void Lfm2::Forward(const Batch& batch, cache::StepView& step, ThreadPool& pool, std::span<float> logits,
                   Probe* probe) {
  Pass pass{.batch = batch, .step = step, .layout = layout_, .pool = pool, .work = work_};
  const int64_t rows = pass.rows(), size = rows * config_.hidden;
  const std::span<float> h = work_.hidden.Get(size), normed = work_.normed.Get(size),
                         mixed = work_.mixed.Get(size);
  if (!layout_.groups.empty()) {
    rotary_.Prepare(pass);
    work_.attention.Prepare(batch.row_begin, config_.heads, config_.kv_heads);
  }

  kernels::EmbeddingRows(embedding_, batch.tokens, h);
  Report(probe, "hidden.embed", h, rows);
  for (size_t layer = 0; layer < blocks_.size(); ++layer) {
    const Block& block = blocks_[layer];
    block.operator_norm.Run(pool, h, normed);
    std::visit([&](const auto& mixer) { mixer.Run(pass, normed, mixed); }, block.mixer);
    kernels::Add(pool, mixed, h);
    block.ffn_norm.Run(pool, h, normed);
    block.feed_forward.Run(pass, normed, mixed);
    kernels::Add(pool, mixed, h);
    Report(probe, fmt::format("hidden.layer{}", layer), h, rows);
  }
  if (probe != nullptr) {
    final_norm_.Run(pool, h, normed);
    Report(probe, "hidden.final_norm", normed, rows);
  }
  Logits(pass, h, logits);
}

void Lfm2::Logits(Pass& pass, std::span<const float> h, std::span<float> logits) const {
  const auto rows = static_cast<int64_t>(pass.batch.logit_rows.size());
  const auto width = static_cast<size_t>(config_.hidden);
  const std::span<float> outputs = pass.work.outputs.Get(rows * config_.hidden);
  for (size_t i = 0; i < pass.batch.logit_rows.size(); ++i) {
    std::ranges::copy(h.subspan(static_cast<size_t>(pass.batch.logit_rows[i]) * width, width),
                      outputs.subspan(i * width).begin());
  }
  final_norm_.Run(pass.pool, outputs, outputs);
  head_.Run(pass.pool, outputs, rows, logits);
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadLfm2(std::shared_ptr<const weights::ModelFiles> files) {
  const auto config = ReadLfm2Config(*files);
  if (!config) return std::unexpected(config.error());
  TensorBinder bind(*files);
  auto model = std::make_unique<Lfm2>(std::move(files), *config, bind);
  if (bind.error()) return std::unexpected(*bind.error());
  return model;
}

}  // namespace quire::runner::models
