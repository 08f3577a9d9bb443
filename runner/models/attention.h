// Self-attention with grouped KV heads, causal but for rows of images, in the variants that the families use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runner/models/forward_context.h"
#include "runner/models/indexer.h"
#include "runner/models/linear.h"
#include "runner/models/low_rank.h"
#include "runner/models/model.h"
#include "runner/models/output_gate.h"
#include "runner/models/rope.h"

namespace quire::runner::models {

// The slopes of ALiBi (Press et al. 2022), whose largest bias is `largest`, for any number of heads: those of
// the power of 2 below, then every other one of twice as many.
std::vector<float> AlibiSlopes(int32_t heads, float largest);

// Queries at position p grow by 1 + beta log(1 + floor((p + offset) / context)) (Llama 4); beta 0: they do
// not.
struct QueryGrowth {
  float beta = 0;
  int64_t context = 1;
  int64_t offset = 0;

  // Takes queries [rows, any width]. REQUIRES: ctx.Prepare has run for this pass.
  void Apply(const ForwardContext& ctx, std::span<float> queries) const;
};

//   q = rope(norm(q(x)))   k = rope(norm(k(x)))   v = norm(v(x))
//   y = out(norm(softmax(cap(scale q k)) v))
// Norms are of each head or of all heads of a row, as their weights have it, before the rotation, or behind
// it with norm_rotated; norms and the rotation are optional.
struct Attention {
  Linear q, out;
  Linear k;  // none: the keys and values of another layer, which has run before, are read
  Linear v;  // none, with k: the values are k(x)
  LowRank q_adapter, k_adapter, v_adapter;  // added to q(x), k(x) and v(x)
  RmsNorm q_norm, k_norm, v_norm;
  RmsNorm out_norm;  // of what all heads attended to together; or none
  std::vector<float> q_weights,
      k_weights;  // [heads, head_dim] of what is normed, where heads have their own; or empty
  bool norm_rotated = false;
  bool layer_norms = false;                 // of queries and keys, in place of RMS norms
  float clip = 0;                           // of queries, keys and values before the rotation; 0 = none
  const RotaryEmbedding* rotary = nullptr;  // none: positions are not encoded
  int32_t heads = 0;
  int32_t head_dim = 0;
  int32_t value_dim = 0;      // of a head's value; 0 = head_dim. The cache has heads of the larger size
  float key_scale = 1;        // of k(x)
  float value_scale = 1;      // of v(x)
  float scale = 0;            // of the dot products; 0 = 1 / sqrt(head_dim)
  float soft_cap = 0;         // of the scaled dot products; 0 = none
  std::vector<float> sinks;   // [heads] scores beside those of the keys, or empty
  std::vector<float> slopes;  // [heads] of ALiBi, or empty
  QueryGrowth growth = {};
  std::optional<Indexer> indexer;  // chooses the keys that are seen
  // q(x) is [heads, query and gate, head_dim], and y = out(sigmoid(gate) * attended).
  bool gated = false;
  OutputGate gate = {};  // another gate, with a matrix of its own
  bool causal = false;   // also where rows of an image see each other (Batch::seen_end)
  CacheBinding binding;  // of its own, or the other layer's, keys

  // REQUIRES: ctx.Prepare and, with a rotary embedding, its Prepare have run for this pass.
  void Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;

 private:
  // q(x), k(x), v(x), one row per token; of q gated ones both halves.
  struct Projections {
    std::span<float> q, k, v, gate;
  };
  Projections Project(ForwardContext& ctx, const kernels::MatMulInput& x) const;
  int32_t value_size() const { return value_dim > 0 ? value_dim : head_dim; }
  // What a head has in the cache.
  int32_t cached_size() const { return std::max(head_dim, value_size()); }
  std::span<float> Queries(ForwardContext& ctx, const kernels::MatMulInput& x,
                           std::span<float> projected) const;
  void StoreKeys(ForwardContext& ctx, const kernels::MatMulInput& x, std::span<float> keys,
                 std::span<float> values) const;
};

}  // namespace quire::runner::models
