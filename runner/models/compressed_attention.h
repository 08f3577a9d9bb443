// DeepSeek V4's attention: one key for all heads, which is its value too, in a window and, where a layer
// compresses, one for each block of tokens before.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runner/kernels/selection.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"
#include "runner/models/model.h"
#include "runner/models/rope.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {

// The keys of blocks of `rate` tokens: per channel
//   rope(norm(sum over tokens of softmax(gate(x) + places) key(x))), rotated to the block's first token.
// With `overlap` both maps have twice the channels, and a block's softmax has 2 rate tokens: the first half
// of the channels for the tokens of the block before, the second half for its own. Cache: what the maps
// make of the tokens of open blocks, and a row for each block.
struct Compressor {
  int32_t dim = 0;   // of a key
  int32_t rate = 0;  // tokens of a block
  bool overlap = false;
  Linear key = {}, gate = {};      // [series() * dim]
  std::vector<float> places = {};  // [rate, series() * dim]
  RmsNorm norm = {};
  const RotaryEmbedding* rotary = nullptr;  // of the channels at the end, which are cached first
  int32_t rotated = 0;
  CacheBinding tokens = {}, blocks = {};

  int32_t series() const { return overlap ? 2 : 1; }
  int32_t row() const { return 2 * series() * dim; }
  // Tokens that are kept for open blocks.
  int32_t window() const { return series() * rate; }
  // The pass's tokens, and the blocks whose last one is among them. Takes ctx.work.convolved and projected.
  void Store(ForwardContext& ctx, const kernels::MatMulInput& x) const;

 private:
  void Compress(const ForwardContext& ctx, size_t sequence, int64_t block) const;
};

// Which blocks of a layer are seen: those whose keys score best.
struct BlockChooser {
  Compressor keys = {};
  Linear query = {};    // [heads, dim] from the compressed queries
  Linear weights = {};  // [heads]
  int32_t heads = 0;
  kernels::IndexRule rule = {};

  // Fills ctx.work.selection. REQUIRES: keys.Store has run.
  void Choose(ForwardContext& ctx, const kernels::MatMulInput& x, const kernels::MatMulInput& low) const;
};

struct CompressedAttentionShape {
  int32_t heads = 0, head_dim = 0;
  int32_t rotated = 0;  // channels at the end of a head
  int32_t query_rank = 0;
  int32_t window = 0;
  int32_t groups = 0, group_rank = 0;  // of heads, on the way out
  float eps = 0;
};

//   q = rope(rms(query(query_norm(query_down(x)))))   k = rope(key_norm(key(x)))
//   o = unrope(softmax(scale q k, sinks) k)           over the window and the blocks seen
//   y = out(group_out_g(o_g) of all groups of heads)
struct CompressedAttention {
  CompressedAttentionShape shape;
  Linear query_down, query, key;
  RmsNorm query_norm, head_norm, key_norm;
  std::vector<float> sinks;                // [heads]
  std::vector<kernels::Matrix> group_out;  // [groups] of [group_rank, heads / groups * head_dim]
  Linear out;
  const RotaryEmbedding* rotary = nullptr;
  const RotaryEmbedding* inverse = nullptr;  // by minus the position
  std::optional<Compressor> compressor;
  std::optional<BlockChooser> chooser;  // none: all blocks are seen
  CacheBinding binding;                 // of the window

  // REQUIRES: ctx.Prepare and the rotary embeddings' Prepare have run for this pass.
  void Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;

 private:
  void StoreKey(ForwardContext& ctx, const kernels::MatMulInput& x) const;
  // Also fills the selection.
  std::span<float> Queries(ForwardContext& ctx, const kernels::MatMulInput& x) const;
};

}  // namespace quire::runner::models
