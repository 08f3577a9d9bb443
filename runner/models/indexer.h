// Learned selection: a small attention of its own, the indexer, scores what came before a token, and the
// layer's attention sees the best of it only ("DeepSeek-V3.2", DeepSeek-AI 2025, and its relatives).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runner/kernels/selection.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"
#include "runner/models/model.h"
#include "runner/models/rope.h"

namespace quire::runner::models {

//   q_h = rope(query_norm(query(x_q)))   k = rope(key_norm(key(x)))   w = weight_scale * weights(x)
// With a stride r > 1, a key stands for the block of tokens [b r, b r + r): the mean of key(x) over them,
// normed, and rotated to the position of the first. What waits for the block's last token is cached too.
struct Indexer {
  kernels::IndexRule rule;
  int32_t dim = 0;
  int32_t stride = 1;
  Linear query;    // [heads, dim]
  Linear key;      // [dim]
  Linear weights;  // [heads]; none: all 1
  float weight_scale = 1;
  RmsNorm query_norm;  // of each head, or none
  Norm key_norm;
  const RotaryEmbedding* rotary = nullptr;
  int32_t rotated_last = 0;  // channels at the end of a head that are rotated in place of the first
  CacheBinding keys;         // a row for each token; with a stride those of open blocks
  CacheBinding blocks;       // with a stride: a row for each block

  // Keys and weights of the pass's tokens, from x [rows, hidden]; weights stay until Choose().
  void Store(ForwardContext& ctx, const kernels::MatMulInput& x) const;
  // Fills ctx.work.selection. REQUIRES: Store has run.
  void Choose(ForwardContext& ctx, const kernels::MatMulInput& query_input) const;

  // Adds what the passes need.
  void GrowWidths(RowWidths& widths) const;

 private:
  kernels::AttentionLayer LayerOf(const ForwardContext& ctx, const CacheBinding& binding) const;
  void Rotate(const ForwardContext& ctx, std::span<float> x) const;
  void StoreBlocks(ForwardContext& ctx) const;
};

}  // namespace quire::runner::models
