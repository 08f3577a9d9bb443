// Inputs that each layer has of its own from a token, beside the residual stream (Gemma 3n, Gemma 4).
#pragma once

#include <cstdint>
#include <span>

#include "runner/models/forward_context.h"
#include "runner/models/linear.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {

//   per_layer = (norm(projection(h) / sqrt(hidden)) + embedding(token) * sqrt(width)) / sqrt(2),  [layers,
//   width].
struct PerLayerInputs {
  kernels::Matrix embedding;  // [vocab, layers * width]; tokens beyond it have the first row
  Linear projection;          // [layers * width, hidden]
  RmsNorm norm;               // [width]
  int64_t layers = 0, width = 0;
  TokenId image_token = 0;  // in place of the rows of images

  // REQUIRES: layers and width are set.
  void Bind(const TensorScope& scope, int64_t vocab, int64_t hidden, float eps);
  // h: the embedded tokens. Fills ctx.work.per_layer, [rows, layers, width].
  void Run(ForwardContext& ctx, std::span<const float> h) const;
  // What Run() made for this layer, [rows, width], in ctx.work.per_layer_context; empty without inputs.
  std::span<const float> Rows(ForwardContext& ctx, size_t layer) const;

 private:
  void EmbedRows(const Batch& batch, std::span<float> to) const;
};

}  // namespace quire::runner::models
