// The code that all families share: tokens are embedded, run through layers that add to a residual stream,
// and the final norm and head turn the stream into logits. A family binds its layers and says how one of them
// runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runner/models/attention.h"
#include "runner/models/config_reader.h"
#include "runner/models/decoder_config.h"
#include "runner/models/forward_context.h"
#include "runner/models/mlp.h"
#include "runner/models/model.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {

// The usual tensor names of a layer's parts. A family with other names passes its own.
struct AttentionNames {
  TensorName q = {"self_attn.q_proj", "attn_q"};
  TensorName k = {"self_attn.k_proj", "attn_k"};
  TensorName v = {"self_attn.v_proj", "attn_v"};
  TensorName out = {"self_attn.o_proj", "attn_output"};
  TensorName q_norm = {"self_attn.q_norm", "attn_q_norm"};
  TensorName k_norm = {"self_attn.k_norm", "attn_k_norm"};
  TensorName gate = {"self_attn.gate_proj", "attn_gate"};       // OutputGate
  TensorName sinks = {"self_attn.sinks", "attn_sinks.weight"};  // complete
  TensorName qkv = {};       // rows of q, k and v in one matrix, where a family stores them so
  bool grouped = false;      // a checkpoint's qkv has for each KV head its queries, its key and its value
  TensorName out_norm = {};  // Attention::out_norm, where a family has one
};
struct MlpNames {
  TensorName gate = {"mlp.gate_proj", "ffn_gate"};
  TensorName up = {"mlp.up_proj", "ffn_up"};
  TensorName down = {"mlp.down_proj", "ffn_down"};
  TensorName gate_up = {};  // rows of gate and up in one matrix, where a family stores them so
  TensorName norm = {};     // GatedMlp::norm, where a family has one
};

// RMS norms of queries and keys: over each head, before the rotation or behind it, or over all heads of a row
// together. kUnitHeads: of each head, without weights. kLayerHeads: layer norms of each head, with weights of
// its own and no bias.
enum class QkNorm : uint8_t { kNone, kHeads, kRotatedHeads, kUnitHeads, kLayerHeads, kRow };

// The shape of a layer's attention.
struct AttentionShape {
  int32_t heads = 0, kv_heads = 0, head_dim = 0;
  int32_t value_dim = 0;  // Attention::value_dim
  int32_t window = 0;     // 0 = full attention
  bool chunked = false;   // cache::AttentionGroup
  QkNorm qk_norm = QkNorm::kNone;
  float qk_eps = 0;  // of kUnitHeads; 0 = that of the other norms
  bool gated = false;
  OutputGate::Kind gate = OutputGate::Kind::kNone;
  bool sinks = false;
  Bias bias = Bias::kAbsent;  // of q, k and v
  Bias out_bias = Bias::kAbsent;
  int32_t decoder_layer = -1;  // see AddAttention
};

class Decoder : public Model {
 public:
  const std::string& architecture() const final { return architecture_; }
  int32_t vocab_size() const final { return config_.vocab; }
  int32_t hidden_size() const final { return config_.hidden; }
  int32_t context_length() const final { return config_.context; }
  int64_t parameters() const final { return parameters_; }
  int64_t weight_bytes() const final { return weight_bytes_; }
  int64_t resident_bytes() const final { return resident_bytes_; }
  int64_t streamed_bytes() const final { return streamed_bytes_; }
  int64_t scratch_bytes(int64_t rows) const final { return widths_.BytesFor(rows); }
  int64_t resident_scratch_bytes() const final { return work_.bytes(); }
  const cache::Layout& cache_layout() const final { return layout_; }
  ImageRules image_rules() const final { return image_rules_; }
  api::Result<void> SetKvCacheType(api::KvType type) final;
  cache::RotateKeys key_rotation() const final;
  std::span<const CacheBinding> cache_bindings() const final { return cache_bindings_; }

  void Embed(std::span<const TokenId> tokens, ThreadPool& pool, std::span<float> to) const final;
  void Forward(const Batch& batch, const cache::StepView& step, ThreadPool& pool, const Outputs& outputs,
               ActivationHook* hook) final;
  void Replay(size_t recurrent_layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens,
              ThreadPool& pool) override;

 protected:
  Decoder(std::shared_ptr<const weights::ModelFiles> files, const DecoderConfig& config);

  // Runs decoder layer `layer` on the residual stream h [rows, hidden], or on its streams [rows, streams_,
  // hidden].
  virtual void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) = 0;
  // Before the first layer: h is the embedded tokens, in each stream. Computes the angles that the layers
  // use.
  virtual void PrepareForward(ForwardContext& ctx, std::span<const float> h) = 0;
  // The streams of rows of a residual [any rows, streams, hidden] as one, [any rows, hidden], behind the last
  // layer. REQUIRES: streams_ > 1.
  virtual void JoinStreams(ForwardContext&, std::span<const float> /*h*/, std::span<float> /*to*/) {}
  // How many layers there are: by default one for each binding.
  virtual size_t layers() const { return cache_bindings_.size(); }
  // As Replay, for the decoder layer that has this recurrent state.
  virtual void ReplayLayer(size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens,
                           ThreadPool& pool);

  void BindEmbedding(TensorBinder& bind, TensorName name = {"embed_tokens", "token_embd"});
  // What is behind the embedded tokens of a family that has it: a table of positions [context, hidden], and a
  // norm.
  void BindPositions(TensorBinder& bind, TensorName name);
  void BindEmbeddingNorm(TensorBinder& bind, TensorName name, std::optional<NormKind> kind = {});
  // No final norm where it has no name; of the configuration's kind if none is given.
  void BindHead(TensorBinder& bind, TensorName final_norm = {"norm", "output_norm"},
                TensorName head = {"lm_head", "output"}, std::optional<NormKind> norm_kind = {});
  // In place of the two above: the target's embedding and head, behind a final norm of its own.
  void ShareEmbeddingAndHead(const Decoder& target, const TensorScope& scope, TensorName final_norm,
                             TensorBinder& bind);
  RmsNorm BindNorm(const TensorScope& scope, TensorName name, int32_t size,
                   std::optional<NormKind> kind = {}) const;
  // The final norm of h, in place.
  void NormFinally(ForwardContext& ctx, std::span<float> h) const { final_norm_.Run(ctx.pool, h, h); }
  // A norm of the hidden size and the configuration's kind, or another.
  Norm BindLayerNorm(const TensorScope& scope, TensorName name, std::optional<NormKind> kind = {}) const;
  // Binds the layer to a new part of the cache.
  Attention BindAttention(const TensorScope& scope, const AttentionShape& shape,
                          const RotaryEmbedding* rotary, const AttentionNames& names = {});
  GatedMlp BindMlp(const TensorScope& scope, int32_t width, const MlpNames& names = {},
                   Bias bias = Bias::kAbsent) const;
  PlainMlp BindPlainMlp(const TensorScope& scope, int32_t width, TensorName up, TensorName down,
                        Bias bias = Bias::kAbsent) const;
  // The next layer stores keys that `rotary` has rotated (null: no one has) in the group of this geometry
  // (`layers` is not looked at) for this many query heads (0: the configuration's), or has this recurrent
  // state. With `decoder_layer`, that layer does.
  CacheBinding AddAttention(const cache::AttentionGroup& geometry, const RotaryEmbedding* rotary,
                            int32_t decoder_layer = -1, int32_t heads = 0);
  // A layer more of a group of rows that are no keys and values, but an indexer's, or wait for their block:
  // they stay float32, and the layer's binding is another.
  CacheBinding AddRows(cache::AttentionGroup geometry, const RotaryEmbedding* rotary);
  CacheBinding AddRecurrent(const cache::RecurrentLayer& state, int32_t tiled_over = 0);
  // A layer has this recurrent state beside another one, and no binding to it. Its index in the layout.
  size_t AddState(const cache::RecurrentLayer& state);
  // Layer `decoder_layer` has this state-space state; its index in the layout.
  size_t AddStateSpace(const cache::RecurrentLayer& state, int32_t decoder_layer);
  // The next layer reads what the layer with `binding` stores.
  void AddSharing(const CacheBinding& binding) { cache_bindings_.push_back(binding); }

  const DecoderConfig& config() const { return config_; }
  const cache::Layout& layout() const { return layout_; }

  int32_t streams_ = 1;  // of the residual
  float embedding_scale_ = 1;
  float logit_scale_ = 1;
  float logit_cap_ = 0;  // of the scaled logits; 0 = none
  ImageRules image_rules_ = {};

 private:
  // Tokens' embeddings, and between them what the batch has for the rows of images; in each stream.
  void EmbedRows(const Batch& batch, ThreadPool& pool, std::span<float> h) const;
  // h [rows, hidden]: adds their positions' rows of a table.
  void AddPositions(ForwardContext& ctx, std::span<float> h);
  // Adds what the batch has for the rows of images behind this layer.
  void AddBehind(const Batch& batch, size_t layer, ThreadPool& pool, std::span<float> h) const;
  // Final norm of the rows named, of one stream.
  std::span<float> Final(ForwardContext& ctx, std::span<const int32_t> rows, std::span<const float> h,
                         std::span<float> to);

  CacheBinding GroupLayer(const cache::AttentionGroup& geometry, const RotaryEmbedding* rotary,
                          int32_t heads);
  int32_t DecoderLayer(int32_t given) const {
    return given >= 0 ? given : static_cast<int32_t>(cache_bindings_.size());
  }

  std::shared_ptr<const weights::ModelFiles> files_;  // keeps every Matrix mapped
  const std::string architecture_;
  const DecoderConfig config_;
  cache::Layout layout_;
  std::vector<CacheBinding> cache_bindings_;
  static constexpr int32_t kNoHeads = 0;                       // of a group of AddRows
  std::vector<int32_t> group_heads_;                           // [groups] query heads
  bool keys_rotate_ = true;                                    // cached keys can be moved to other positions
  std::vector<std::vector<const RotaryEmbedding*>> rotaries_;  // [groups][layers of the group]
  int64_t parameters_ = 0;
  int64_t weight_bytes_ = 0;
  int64_t resident_bytes_ = 0;
  int64_t streamed_bytes_ = 0;
  RowWidths widths_;
  kernels::Matrix embedding_;
  kernels::Matrix positions_;  // without data where a model has no such table
  std::vector<TokenId> position_rows_;
  Norm embedding_norm_;
  Norm final_norm_;
  Linear head_;
  Workspace work_;
};

// The last step of every family's loader.
template <class Family, class... Args>
api::Result<std::unique_ptr<Model>> BuildModel(ConfigReader& read,
                                               std::shared_ptr<const weights::ModelFiles> files,
                                               const Args&... args) {
  read.RefuseUnreadKeys();
  if (read.error()) return std::unexpected(*read.error());
  PanelStore* const panels = AttachPanels(&files);
  TensorBinder bind(*files, panels);
  auto model = std::make_unique<Family>(files, bind, args...);
  bind.RefuseUnreadScales();
  if (bind.error()) return std::unexpected(*bind.error());
  return model;
}

}  // namespace quire::runner::models
