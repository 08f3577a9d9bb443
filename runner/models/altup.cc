#include "runner/models/altup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/portable_math.h"

namespace quire::runner::models {
namespace {

constexpr float kLeastSquare = 1e-5F;
constexpr size_t kAltUpRows = 4;

template <class Fn>
void ForEachRow(ForwardContext& ctx, const Fn& fn) {
  const auto rows = static_cast<size_t>(ctx.rows());
  ctx.pool.ParallelFor((rows + kAltUpRows - 1) / kAltUpRows, [&](size_t task) {
    for (size_t row = task * kAltUpRows; row < std::min(rows, (task + 1) * kAltUpRows); ++row) fn(row);
  });
}

float MeanSquare(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  return static_cast<float>(sum / static_cast<double>(x.size()));
}

// Rows of x get the root mean square of the rows of `like`.
void Resize(ForwardContext& ctx, size_t width, std::span<const float> like, std::span<float> x) {
  ForEachRow(ctx, [&](size_t row) {
    const std::span<float> own = x.subspan(row * width, width);
    const float target = std::sqrt(MeanSquare(like.subspan(row * width, width)));
    const float factor = target / std::sqrt(std::max(MeanSquare(own), kLeastSquare));
    for (float& value : own) value *= factor;
  });
}

std::vector<Linear> BindMaps(const TensorScope& scope, const AltUpShape& shape, const char* name,
                             const char* gguf) {
  std::vector<Linear> maps;
  if (scope.gguf()) {
    const std::string stacked = fmt::format("{}.weight", gguf);
    for (const kernels::Matrix& one :
         scope.Stacked({"", stacked}, shape.streams - 1, shape.hidden, shape.hidden)) {
      maps.push_back({.weight = scope.InPanels(one), .bias = {}});
    }
    return maps;
  }
  for (int64_t i = 0; i + 1 < shape.streams; ++i) {
    const std::string one = fmt::format("{}.{}", name, i);
    maps.push_back(scope.BindLinear({one, ""}, shape.hidden, shape.hidden));
  }
  return maps;
}

}  // namespace

std::span<const float> AltUp::Modalities(ForwardContext& ctx, std::span<const float> x) const {
  const std::span<float> normed = ctx.work.normed.Get(static_cast<int64_t>(x.size()));
  router_norm.Run(ctx.pool, x, normed);
  const std::span<float> modal = ctx.work.scores.Get(ctx.rows() * shape.streams);
  router.Run(ctx.pool, ctx.Input(normed), modal);
  for (float& value : modal) value = kernels::Tanh(value);
  return modal;
}

void AltUp::Predict(ForwardContext& ctx, std::span<float> h) const {
  const auto streams = static_cast<size_t>(shape.streams), width = static_cast<size_t>(shape.hidden);
  const size_t size = static_cast<size_t>(ctx.rows()) * width;
  const std::span<const float> modal =
      Modalities(ctx, h.subspan(static_cast<size_t>(shape.active) * size, size));
  ForEachRow(ctx, [&](size_t row) {
    std::vector<float> factors(streams * streams), before(streams);
    for (size_t k = 0; k < factors.size(); ++k) {
      for (size_t m = 0; m < streams; ++m) factors[k] += predict[k * streams + m] * modal[row * streams + m];
    }
    for (size_t c = row * width; c < (row + 1) * width; ++c) {
      for (size_t j = 0; j < streams; ++j) before[j] = h[j * size + c];
      for (size_t i = 0; i < streams; ++i) {
        float sum = 0;
        for (size_t j = 0; j < streams; ++j) sum += factors[i * streams + j] * before[j];
        h[i * size + c] = before[i] + sum;
      }
    }
  });
}

void AltUp::Correct(ForwardContext& ctx, std::span<const float> result, std::span<float> h) const {
  const auto streams = static_cast<size_t>(shape.streams), width = static_cast<size_t>(shape.hidden);
  const size_t size = result.size(), active = static_cast<size_t>(shape.active) * size;
  const std::span<const float> modal = Modalities(ctx, result);
  ForEachRow(ctx, [&](size_t row) {
    std::vector<float> factors(streams, 1.0F);
    for (size_t i = 0; i < streams; ++i) {
      float sum = 0;
      for (size_t m = 0; m < streams; ++m) sum += correct[i * streams + m] * modal[row * streams + m];
      factors[i] += sum;
    }
    for (size_t c = row * width; c < (row + 1) * width; ++c) {
      const float innovation = result[c] - h[active + c];
      for (size_t i = 0; i < streams; ++i) h[i * size + c] += factors[i] * innovation;
    }
  });
}

AltUp BindAltUp(const TensorScope& scope, const AltUpShape& shape, float eps) {
  AltUp altup;
  altup.shape = shape;
  const int64_t streams = shape.streams;
  altup.router_norm = {.weight = scope.Norm({"altup.router_norm", "altup_router_norm"}, shape.hidden),
                       .eps = eps};
  for (float& weight : altup.router_norm.weight) weight /= static_cast<float>(shape.hidden);
  altup.router = scope.BindLinear({"altup.modality_router", "altup_router"}, streams, shape.hidden);
  altup.predict =
      scope.Table({"altup.prediction_coefs.weight", "altup_predict_coef.weight"}, streams * streams, streams);
  altup.correct =
      scope.Table({"altup.correction_coefs.weight", "altup_correct_coef.weight"}, streams, streams);
  RowWidths::Grow(scope.widths().scores, streams);
  RowWidths::Grow(scope.widths().altup, streams * shape.hidden);
  return altup;
}

void AltUpEnds::Split(ForwardContext& ctx, std::span<const float> h, std::span<float> streams) const {
  std::ranges::copy(h, streams.begin());
  for (size_t i = 0; i < in.size(); ++i) {
    const std::span<float> one = streams.subspan((i + 1) * h.size(), h.size());
    in[i].Run(ctx.pool, ctx.Input(h), one);
    Resize(ctx, static_cast<size_t>(shape.hidden), h, one);
  }
}

void AltUpEnds::Join(ForwardContext& ctx, std::span<const float> streams, std::span<float> h) const {
  const std::span<const float> first = streams.first(h.size());
  const std::span<float> one = ctx.work.mixed.Get(static_cast<int64_t>(h.size()));
  std::ranges::copy(first, h.begin());
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].Run(ctx.pool, ctx.Input(streams.subspan((i + 1) * h.size(), h.size())), one);
    Resize(ctx, static_cast<size_t>(shape.hidden), first, one);
    kernels::Add(ctx.pool, one, h);
  }
  kernels::Scale(ctx.pool, 1.0F / static_cast<float>(shape.streams), h);
}

AltUpEnds BindAltUpEnds(const TensorScope& scope, const AltUpShape& shape) {
  return {.shape = shape,
          .in = BindMaps(scope, shape, "altup_projections", "altup_proj"),
          .out = BindMaps(scope, shape, "altup_unembed_projections", "altup_unembd_proj")};
}

}  // namespace quire::runner::models
