// Alternating updates (Gemma 3n), a residual of several streams: a layer computes one, and predicts and
// corrects the others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runner/models/forward_context.h"
#include "runner/models/linear.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {

// The streams of a step's rows, one stream after the other: [streams, rows, hidden].
struct AltUpShape {
  int64_t streams = 0, hidden = 0;
  int64_t active = 0;  // the stream that layers compute
};

// Per layer: m(x) = tanh(router(router_norm(x) / hidden)), [streams].
struct AltUp {
  AltUpShape shape;
  RmsNorm router_norm;         // its weight includes 1 / hidden
  Linear router;               // [streams, hidden]
  std::vector<float> predict;  // [streams * streams, streams]
  std::vector<float> correct;  // [streams, streams]

  // h_i += sum_j P_ij h_j, P = predict(m(h_active)).
  void Predict(ForwardContext& ctx, std::span<float> h) const;
  // h_i += (correct_i(m(result)) + 1) (result - h_active). result [rows, hidden].
  void Correct(ForwardContext& ctx, std::span<const float> result, std::span<float> h) const;

 private:
  // [rows, streams], in ctx.work.scores.
  std::span<const float> Modalities(ForwardContext& ctx, std::span<const float> x) const;
};

AltUp BindAltUp(const TensorScope& scope, const AltUpShape& shape, float eps);

// Between embedded tokens and streams: stream i > 0 is a map of stream 0 with its size, row by row; and
// back, the mean of all streams.
struct AltUpEnds {
  AltUpShape shape;
  std::vector<Linear> in, out;  // [streams - 1] of [hidden, hidden]

  void Split(ForwardContext& ctx, std::span<const float> h, std::span<float> streams) const;
  void Join(ForwardContext& ctx, std::span<const float> streams, std::span<float> h) const;
};

AltUpEnds BindAltUpEnds(const TensorScope& scope, const AltUpShape& shape);

}  // namespace quire::runner::models
