#include "runner/models/compressed_attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runner/kernels/attention.h"
#include "runner/kernels/elementwise.h"
#include "runner/kernels/portable_math.h"
#include "runner/models/gated_delta.h"
#include "runner/models/per_head.h"

namespace quire::runner::models {
namespace {

kernels::AttentionLayer LayerAt(const ForwardContext& ctx, const CacheBinding& binding) {
  return {.layout = &ctx.layout,
          .group = binding.index,
          .layer = binding.layer,
          .step = &ctx.step,
          .row_begin = ctx.batch.row_begin};
}

// Rows of `width` numbers: the last `count` come first, or the first `count` last.
void LastFirst(std::span<float> x, int32_t width, int32_t count) {
  for (auto row = x.begin(); row != x.end(); row += width) std::rotate(row, row + width - count, row + width);
}
void FirstLast(std::span<float> x, int32_t width, int32_t count) {
  for (auto row = x.begin(); row != x.end(); row += width) std::rotate(row, row + count, row + width);
}

}  // namespace

void Compressor::Store(ForwardContext& ctx, const kernels::MatMulInput& x) const {
  const std::span<float> made = ctx.work.projected.Get(ctx.rows() * row());
  RunSideBySide(ctx, x, {&key, &gate}, made);
  kernels::StoreKeyValue(ctx.pool, LayerAt(ctx, tokens), made, {});
  struct Block {
    size_t sequence;
    int64_t number;
  };
  std::vector<Block> whole;
  for (size_t s = 0; s + 1 < ctx.batch.row_begin.size(); ++s) {
    const int64_t begin = ctx.step.offset(s);
    const int64_t end = begin + ctx.batch.row_begin[s + 1] - ctx.batch.row_begin[s];
    for (int64_t block = begin / rate; (block + 1) * rate <= end; ++block) whole.push_back({s, block});
  }
  ctx.pool.ParallelFor(whole.size(), [&](size_t i) { Compress(ctx, whole[i].sequence, whole[i].number); });
}

void Compressor::Compress(const ForwardContext& ctx, size_t sequence, int64_t block) const {
  const kernels::AttentionLayer from = LayerAt(ctx, tokens);
  const auto width = static_cast<size_t>(dim);
  const size_t count = static_cast<size_t>(series()) * static_cast<size_t>(rate);
  const auto half = static_cast<size_t>(series()) * width;  // a row is keys, then gates
  const int64_t first = overlap && block > 0 ? block - 1 : block;
  std::vector<float> stored(2 * half), keys, gates;
  keys.reserve(count * width);
  gates.reserve(count * width);
  for (int64_t position = first * rate; position < (block + 1) * rate; ++position) {
    kernels::ReadRow(from, sequence, position, stored);
    // The second series for the block's own tokens.
    const size_t at = overlap && position >= block * rate ? width : 0;
    const float* const place = places.data() + static_cast<size_t>(position % rate) * half + at;
    keys.insert(keys.end(), stored.begin() + static_cast<ptrdiff_t>(at),
                stored.begin() + static_cast<ptrdiff_t>(at + width));
    for (size_t c = 0; c < width; ++c) gates.push_back(stored[half + at + c] + place[c]);
  }
  const size_t slots = gates.size() / width;
  std::vector<float> pooled(width);
  for (size_t c = 0; c < width; ++c) {
    float top = gates[c], sum = 0, weighted = 0;
    for (size_t i = 1; i < slots; ++i) top = std::max(top, gates[i * width + c]);
    for (size_t i = 0; i < slots; ++i) {
      const float weight = kernels::Exp(gates[i * width + c] - top);
      sum += weight;
      weighted += weight * keys[i * width + c];
    }
    pooled[c] = weighted / sum;
  }
  ThreadPool alone(1);
  norm.Run(alone, pooled, pooled);
  LastFirst(pooled, dim, rotated);
  rotary->Shift(block * rate, dim, pooled);
  kernels::WriteRow(LayerAt(ctx, blocks), sequence, (block + 1) * rate - 1, pooled);
}

void BlockChooser::Choose(ForwardContext& ctx, const kernels::MatMulInput& x,
                          const kernels::MatMulInput& low) const {
  const std::span<float> queries = ctx.work.index_queries.Get(ctx.rows() * heads * keys.dim);
  const std::span<float> of_heads = ctx.work.index_weights.Get(ctx.rows() * heads);
  query.Run(ctx.pool, low, queries);
  weights.Run(ctx.pool, x, of_heads);
  kernels::Scale(ctx.pool, static_cast<float>(1 / std::sqrt(static_cast<double>(heads))), of_heads);
  LastFirst(queries, keys.dim, keys.rotated);
  keys.rotary->Apply(ctx, keys.dim, queries);
  kernels::SelectKeys(ctx.pool, LayerAt(ctx, keys.blocks), rule, queries, of_heads, &ctx.work.selection);
}

void CompressedAttention::StoreKey(ForwardContext& ctx, const kernels::MatMulInput& x) const {
  const std::span<float> keys = ctx.work.k.Get(ctx.rows() * shape.head_dim);
  key.Run(ctx.pool, x, keys);
  key_norm.Run(ctx.pool, keys, keys);
  LastFirst(keys, shape.head_dim, shape.rotated);
  rotary->Apply(ctx, shape.head_dim, keys);
  kernels::StoreKeyValue(ctx.pool, LayerAt(ctx, binding), keys, {});
}

std::span<float> CompressedAttention::Queries(ForwardContext& ctx, const kernels::MatMulInput& x) const {
  const std::span<float> low = ctx.work.convolved.Get(ctx.rows() * shape.query_rank);
  const std::span<float> queries = ctx.work.q.Get(ctx.rows() * shape.heads * shape.head_dim);
  query_down.Run(ctx.pool, x, low);
  query_norm.Run(ctx.pool, low, low);
  const kernels::MatMulInput in = ctx.Input(low);
  query.Run(ctx.pool, in, queries);
  head_norm.Run(ctx.pool, queries, queries);
  LastFirst(queries, shape.head_dim, shape.rotated);
  rotary->Apply(ctx, shape.head_dim, queries);
  if (chooser) chooser->Choose(ctx, x, in);
  return queries;
}

void CompressedAttention::Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const {
  const kernels::MatMulInput in = ctx.Input(x);
  StoreKey(ctx, in);
  if (compressor) compressor->Store(ctx, in);
  if (chooser) chooser->keys.Store(ctx, in);
  const std::span<float> queries = Queries(ctx, in);
  const std::span<float> attended = ctx.work.attended.Get(static_cast<int64_t>(queries.size()));
  const auto root = std::sqrt(static_cast<double>(shape.head_dim));
  const kernels::Scoring scoring{.scale = static_cast<float>(1 / root), .soft_cap = 0, .sinks = sinks};
  if (compressor) {
    const std::array<kernels::SelectedKeys, 2> sources = {{
        {.at = LayerAt(ctx, compressor->blocks), .chosen = chooser ? &ctx.work.selection : nullptr},
        {.at = LayerAt(ctx, binding), .chosen = nullptr},
    }};
    kernels::SelectedAttention(ctx.pool, sources, shape.heads, scoring, queries, attended);
  } else {
    kernels::Attention(ctx.pool, LayerAt(ctx, binding), ctx.work.plans[binding.index], scoring, queries,
                       attended);
  }
  // Values are keys, with positions.
  inverse->Apply(ctx, shape.head_dim, attended);
  FirstLast(attended, shape.head_dim, shape.rotated);
  const auto rows = static_cast<size_t>(ctx.rows()), groups = static_cast<size_t>(shape.groups);
  const size_t wide = static_cast<size_t>(shape.heads / shape.groups) * static_cast<size_t>(shape.head_dim);
  const auto narrow = static_cast<size_t>(shape.group_rank);
  const std::span<float> by_group = ctx.work.z.Get(static_cast<int64_t>(rows * groups * wide));
  const std::span<float> made = ctx.work.convolved.Get(static_cast<int64_t>(rows * groups * narrow));
  const std::span<float> joined = ctx.work.projected.Get(static_cast<int64_t>(rows * groups * narrow));
  ToHeads(attended, rows, groups, wide, 0, wide, by_group);
  RunHeads(ctx, group_out, by_group, made);
  FromHeads(made, rows, groups, narrow, 0, narrow, joined);
  out.Run(ctx.pool, ctx.Input(joined), y);
}

}  // namespace quire::runner::models
