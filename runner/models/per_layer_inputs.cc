#include "runner/models/per_layer_inputs.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runner/kernels/elementwise.h"

namespace quire::runner::models {

void PerLayerInputs::Bind(const TensorScope& scope, int64_t vocab, int64_t hidden, float eps) {
  const int64_t all = layers * width;
  RowWidths::Grow(scope.widths().per_layer, all);
  embedding = scope.Matrix({"embed_tokens_per_layer", "per_layer_token_embd"}, vocab, all);
  projection = scope.BindLinear({"per_layer_model_projection", "per_layer_model_proj"}, all, hidden);
  norm = {.weight = scope.Norm({"per_layer_projection_norm", "per_layer_proj_norm"}, width), .eps = eps};
}

void PerLayerInputs::Run(ForwardContext& ctx, std::span<const float> h) const {
  const std::span<float> to = ctx.work.per_layer.Get(ctx.rows() * layers * width);
  const std::span<float> context = ctx.work.per_layer_context.Get(static_cast<int64_t>(to.size()));
  projection.Run(ctx.pool, ctx.Input(h), context);
  kernels::Scale(ctx.pool, static_cast<float>(1 / std::sqrt(static_cast<double>(projection.weight.in))),
                 context);
  norm.Run(ctx.pool, context, context);
  EmbedRows(ctx.batch, to);
  kernels::Scale(ctx.pool, static_cast<float>(std::sqrt(static_cast<double>(width))), to);
  kernels::Add(ctx.pool, context, to);
  kernels::Scale(ctx.pool, static_cast<float>(1 / std::sqrt(2.0)), to);
}

void PerLayerInputs::EmbedRows(const Batch& batch, std::span<float> to) const {
  const std::span<const TokenId> tokens = batch.tokens;
  const auto size = static_cast<size_t>(layers * width);
  size_t row = 0;
  const auto embed = [&](std::span<const TokenId> some) {
    const auto unknown = [&](TokenId token) { return token >= embedding.out; };
    std::vector<TokenId> known;
    if (std::ranges::any_of(some, unknown)) {
      known.assign(some.begin(), some.end());
      std::ranges::replace_if(known, unknown, TokenId{0});
      some = known;
    }
    kernels::EmbeddingRows(embedding, some, to.subspan(row * size, some.size() * size));
    row += some.size();
  };
  for (const EmbeddedRows& image : batch.embedded) {
    embed(tokens.subspan(row, static_cast<size_t>(image.begin) - row));
    while (row < static_cast<size_t>(image.end)) embed({&image_token, 1});
  }
  embed(tokens.subspan(row));
}

std::span<const float> PerLayerInputs::Rows(ForwardContext& ctx, size_t layer) const {
  const auto columns = static_cast<size_t>(width), rows = static_cast<size_t>(ctx.rows());
  if (columns == 0) return {};
  const size_t stride = columns * static_cast<size_t>(layers);
  const std::span<const float> all = ctx.work.per_layer.Get(static_cast<int64_t>(rows * stride));
  const std::span<float> own = ctx.work.per_layer_context.Get(static_cast<int64_t>(rows * columns));
  for (size_t row = 0; row < rows; ++row) {
    std::ranges::copy(all.subspan(row * stride + layer * columns, columns),
                      own.subspan(row * columns).begin());
  }
  return own;
}

}  // namespace quire::runner::models
