// Multi-head latent attention (DeepSeek-V2): keys and values of all heads are linear in one short vector per
// token, and only that vector and one rotated key are cached.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/layout.h"
#include "runner/models/attention.h"
#include "runner/models/config_reader.h"
#include "runner/models/forward_context.h"
#include "runner/models/indexer.h"
#include "runner/models/linear.h"
#include "runner/models/model.h"
#include "runner/models/rope.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {

struct LatentAttentionShape {
  int32_t heads = 0;
  int32_t query_rank = 0;     // 0: queries are not compressed
  int32_t latent = 0;         // of keys and values
  int32_t plain = 0;          // a head's share of a key without position
  int32_t rotary = 0;         // and with
  int32_t value = 0;          // a head's value
  float scale = 0;            // of the dot products
  Bias bias = Bias::kAbsent;  // of the first projections and the last

  // A token in the cache: its rotated key, then its latent.
  cache::AttentionGroup Group() const {
    return {.kv_heads = 1, .head_dim = rotary + latent, .window = 0, .latent = latent};
  }
};

// Reads either format. The scale includes YaRN's, see `rope`. `given_value`: the size of a head's value where
// the configuration does not say; 0 = an error.
LatentAttentionShape ReadLatentAttention(ConfigReader& read, int32_t heads, int32_t given_value = 0);

// The usual tensor names.
struct LatentNames {
  TensorName query_down = {"self_attn.q_a_proj", "attn_q_a"};
  TensorName query_norm = {"self_attn.q_a_layernorm", "attn_q_a_norm"};
  TensorName query_up = {"self_attn.q_b_proj", "attn_q_b"};
  TensorName query = {"self_attn.q_proj", "attn_q"};  // in place of these three
  TensorName kv_down = {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"};
  TensorName kv_norm = {"self_attn.kv_a_layernorm", "attn_kv_a_norm"};
  TensorName kv_up = {"self_attn.kv_b_proj", "attn_kv_b"};  // or attn_k_b and attn_v_b
  TensorName out = {"self_attn.o_proj", "attn_output"};
};

//   c = kv_norm(x W_c)           k = rope(x W_k)
//   q_h = (q_h plain W_kb,h, rope(q_h rotary))
//   y = out(sigmoid(gate(x)) * W_vb,h (softmax(scale q_h (c, k)) c))
// W_kb and W_vb are never applied to keys and values, but to queries and results, in prefill as in decode:
// the order of additions, and so every bit, is that of a single token.
struct LatentAttention {
  LatentAttentionShape shape;
  Linear query_down;  // none: queries are not compressed
  RmsNorm query_norm;
  Linear query;    // [heads, plain and rotary]
  Linear kv_down;  // [latent, rotary]
  RmsNorm kv_norm;
  std::vector<kernels::Matrix> key_up;    // [heads] of [latent, plain]
  std::vector<kernels::Matrix> value_up;  // [heads] of [value, latent]
  Linear out;
  std::vector<float> sinks;  // [heads] scores beside those of the keys, or empty
  const RotaryEmbedding* rotary = nullptr;
  QueryGrowth growth = {};
  std::optional<Indexer> indexer;  // of the compressed queries
  bool selected = false;  // the keys seen are those that the last indexer chose, this layer's or one before
  OutputGate gate = {};
  CacheBinding binding;

  // REQUIRES: ctx.Prepare and rotary->Prepare have run for this pass.
  void Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;

 private:
  std::span<float> Queries(ForwardContext& ctx, const kernels::MatMulInput& x) const;
  void StoreLatent(ForwardContext& ctx, const kernels::MatMulInput& x) const;
};

// All but `rotary`, `growth`, `gate`, the indexer and `binding`.
LatentAttention BindLatentAttention(const TensorScope& scope, int64_t hidden,
                                    const LatentAttentionShape& shape, const LatentNames& names = {});

}  // namespace quire::runner::models
