// Embeddings of the last tokens together, looked up by hashes of n-grams in a table that is far larger than
// the rest of a model (Qwen4-Exp's per-layer embedding). The table stays in its file and is read by rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/layout.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {

struct NgramShape {
  int32_t order = 0;    // the longest n-gram; at least 2
  int32_t heads = 0;    // hashes of each order from 2 on
  int32_t width = 0;    // of the embedding, of all hashes together
  int32_t kernel = 0;   // of the convolution
  int32_t eos = 0;      // the token that cuts n-grams
  int32_t streams = 1;  // of the residual
  int32_t hidden = 0;
  float eps = 0;

  int64_t hashes() const { return int64_t{order - 1} * heads; }
  int64_t tail() const { return int64_t{kernel - 1} * order; }
  int64_t row() const { return int64_t{streams} * hidden; }
};

// With the tokens t_0 = the row's, t_1 before it, ..., where t_s is eos from the first eos token on, and
// before the first token:
//   mix_g = xor over s < g of t_s multiplier_s,   row of hash j of order g: mix_g mod size_j + offset_j
//   e = the table's rows of all hashes;   k = norm(key(e)) per stream, v = value(e)
//   s = k . norm(h) / sqrt(hidden) per stream;   y = sigmoid(sign(s) sqrt(|s|)) v
//   h = h + y + silu(conv(norm(y)))   conv: depthwise, its taps `order` tokens apart
// Cache: two recurrent layers. One has the last order - 1 tokens, each as a float32 of its id + 1, 0 where
// there is none; one has the convolution's last inputs.
struct NgramEmbedding {
  NgramShape shape;
  std::vector<int64_t> multipliers = {};          // [order]
  std::vector<int64_t> sizes = {}, offsets = {};  // [hashes]
  std::vector<kernels::Matrix> tables = {};       // [any rows, width / hashes], one table cut by rows
  std::vector<int64_t> first_rows = {};           // of the tables
  Linear key = {}, value = {};
  RmsNorm plain = {};                                                 // without weights, of a stream
  std::vector<float> key_norm = {}, query_norm = {}, conv_norm = {};  // [streams, hidden]
  std::vector<float> taps = {};             // [kernel, streams, hidden], oldest first
  size_t tokens_layer = 0, conv_layer = 0;  // of the layout

  cache::RecurrentLayer tokens_state() const;
  cache::RecurrentLayer conv_state() const;
  void AddTo(ForwardContext& ctx, std::span<float> h) const;
  // Moves one of the two states in `slot` on by the recorded inputs of some tokens.
  void Replay(const cache::Layout& layout, size_t recurrent_layer, std::byte* slot,
              std::span<const std::byte> inputs, int32_t tokens) const;

 private:
  // The table's rows of each token: [rows, hashes].
  std::vector<int64_t> Hash(ForwardContext& ctx) const;
  void HashRow(std::span<const int64_t> tokens, std::span<int64_t> rows) const;
  void LookUp(ForwardContext& ctx, std::span<const int64_t> rows, std::span<float> e) const;
  void Normalize(ForwardContext& ctx, std::span<const float> x, std::span<const float> weights,
                 std::span<float> y) const;
};

// What a configuration or a checkpoint has of the hashes; empty: they are computed.
struct NgramHashes {
  std::vector<int64_t> multipliers = {}, sizes = {}, offsets = {};
};
// As published: `module` is the number of this embedding among those of a model.
NgramHashes MakeNgramHashes(const NgramShape& shape, int64_t vocab, int64_t seed, int64_t first_size,
                            int64_t module);

// All but the two layers of the cache. `parts`: into how many tensors a checkpoint has cut the table.
NgramEmbedding BindNgramEmbedding(const TensorScope& layer, const TensorScope& global,
                                  const NgramShape& shape, const NgramHashes& hashes, int64_t parts);

}  // namespace quire::runner::models
