#include "runner/models/indexer.h"

#include <algorithm>
#include <cstddef>

#include "runner/kernels/elementwise.h"

namespace quire::runner::models {

kernels::AttentionLayer Indexer::LayerOf(const ForwardContext& ctx, const CacheBinding& binding) const {
  return {.layout = &ctx.layout,
          .group = binding.index,
          .layer = binding.layer,
          .step = &ctx.step,
          .row_begin = ctx.batch.row_begin};
}

// Products do not depend on the order of channels: those that are rotated come first.
void Indexer::Rotate(const ForwardContext& ctx, std::span<float> x) const {
  const auto width = static_cast<ptrdiff_t>(dim), last = static_cast<ptrdiff_t>(rotated_last);
  for (auto head = x.begin(); last > 0 && head != x.end(); head += width) {
    std::rotate(head, head + width - last, head + width);
  }
  if (rotary != nullptr) rotary->Apply(ctx, dim, x);
}

void Indexer::Store(ForwardContext& ctx, const kernels::MatMulInput& x) const {
  const std::span<float> rows = ctx.work.index_keys.Get(ctx.rows() * dim);
  key.Run(ctx.pool, x, rows);
  if (weights) {
    const std::span<float> of_heads = ctx.work.index_weights.Get(ctx.rows() * rule.heads);
    weights.Run(ctx.pool, x, of_heads);
    if (weight_scale != 1) kernels::Scale(ctx.pool, weight_scale, of_heads);
  }
  if (stride == 1) {
    key_norm.Run(ctx.pool, rows, rows);
    Rotate(ctx, rows);
  }
  kernels::StoreKeyValue(ctx.pool, LayerOf(ctx, keys), rows, {});
  if (stride > 1) StoreBlocks(ctx);
}

// Those whose last token is among the pass's.
void Indexer::StoreBlocks(ForwardContext& ctx) const {
  const kernels::AttentionLayer tokens = LayerOf(ctx, keys), to = LayerOf(ctx, blocks);
  const auto width = static_cast<size_t>(dim);
  std::vector<float> mean(width), row(width);
  for (size_t s = 0; s + 1 < ctx.batch.row_begin.size(); ++s) {
    const cache::Position offset = ctx.step.offset(s);
    const cache::Position end = offset + ctx.batch.row_begin[s + 1] - ctx.batch.row_begin[s];
    for (cache::Position first = offset - offset % stride; first + stride <= end; first += stride) {
      std::ranges::fill(mean, 0.0F);
      for (cache::Position p = first; p < first + stride; ++p) {
        kernels::ReadRow(tokens, s, p, row);
        for (size_t i = 0; i < width; ++i) mean[i] += row[i];
      }
      for (float& value : mean) value /= static_cast<float>(stride);
      key_norm.Run(ctx.pool, mean, mean);
      if (rotary != nullptr) rotary->Shift(first, dim, mean);
      kernels::WriteRow(to, s, first + stride - 1, mean);
    }
  }
}

void Indexer::Choose(ForwardContext& ctx, const kernels::MatMulInput& query_input) const {
  const int64_t heads = rule.heads;
  const std::span<float> queries = ctx.work.index_queries.Get(ctx.rows() * heads * dim);
  query.Run(ctx.pool, query_input, queries);
  if (query_norm) query_norm.Run(ctx.pool, queries, queries);
  Rotate(ctx, queries);
  const std::span<const float> of_heads =
      weights ? ctx.work.index_weights.Get(ctx.rows() * heads) : std::span<float>();
  kernels::SelectKeys(ctx.pool, LayerOf(ctx, stride > 1 ? blocks : keys), rule, queries, of_heads,
                      &ctx.work.selection);
}

void Indexer::GrowWidths(RowWidths& widths) const {
  RowWidths::Grow(widths.index, int64_t{rule.heads} * (dim + 1) + dim);
  const int64_t entries = int64_t{rule.best} * std::max(rule.block, rule.expand ? stride : 1);
  RowWidths::Grow(widths.index_chosen, rule.lists * entries);
  RowWidths::Grow(widths.angles, dim);
}

}  // namespace quire::runner::models
