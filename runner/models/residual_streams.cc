#include "runner/models/residual_streams.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/parallel_rows.h"
#include "runner/kernels/portable_math.h"
#include "runner/kernels/state_space.h"

namespace quire::runner::models {
namespace {

using Form = StreamShape::Form;

// Divides the numbers of each column, or row, of a square by their sum + eps.
void Balance(std::span<float> square, size_t size, bool columns, float eps) {
  for (size_t line = 0; line < size; ++line) {
    const auto at = [&](size_t i) -> float& {
      return columns ? square[i * size + line] : square[line * size + i];
    };
    float sum = 0;
    for (size_t i = 0; i < size; ++i) sum += at(i);
    for (size_t i = 0; i < size; ++i) at(i) /= sum + eps;
  }
}

void Softmax(std::span<float> row) {
  const float top = *std::ranges::max_element(row);
  float sum = 0;
  for (float& value : row) {
    value = kernels::Exp(value - top);
    sum += value;
  }
  for (float& value : row) value /= sum;
}

// h_k = post_k o + sum_j mix_jk h_j of one row.
void MixRow(const StreamShape& shape, const float* post, const float* mix, const float* o, float* h) {
  constexpr size_t kColumns = 64;
  const auto streams = static_cast<size_t>(shape.streams), hidden = static_cast<size_t>(shape.hidden);
  std::array<std::array<float, kColumns>, kMaxStreams> old;
  for (size_t first = 0; first < hidden; first += kColumns) {
    const size_t count = std::min(kColumns, hidden - first);
    for (size_t j = 0; j < streams; ++j) std::copy_n(h + j * hidden + first, count, old[j].begin());
    for (size_t k = 0; k < streams; ++k) {
      float* const to = h + k * hidden + first;
      for (size_t c = 0; c < count; ++c) to[c] = post[k] * o[first + c];
      for (size_t j = 0; j < streams; ++j) {
        const float share = mix[j * streams + k];
        for (size_t c = 0; c < count; ++c) to[c] += share * old[j][c];
      }
    }
  }
}

}  // namespace

void ReadStreams(ConfigReader& read, StreamShape* shape) {
  const std::string_view name = shape->form == Form::kLowRank ? "hc_count" : "hc_mult";
  shape->streams = read.Small({name, "hyper_connection.count"}, 2, kMaxStreams,
                              read.gguf() ? std::nullopt : std::optional<int64_t>(4));
  if (shape->form == Form::kLowRank) {
    shape->rank = read.Small({"hc_lowrank", "hyper_connection.low_rank"}, 1, 1 << 18,
                             read.gguf() ? std::nullopt : std::optional<int64_t>(320));
    return;
  }
  shape->eps = static_cast<float>(read.Positive({"hc_eps", "hyper_connection.epsilon"}, 1, 1e-6));
  if (shape->form == Form::kMixing) {
    shape->iterations =
        read.Small({"hc_sinkhorn_iters", "hyper_connection.sinkhorn_iterations"}, 1, 1000, 20);
  } else {
    shape->magnitude =
        static_cast<float>(read.Positive({"hc_magnitude", "hyper_connection.magnitude"}, 1e6, 2));
  }
}

void HyperConnection::Weigh(std::span<float> z) const {
  const auto n = static_cast<size_t>(shape.streams);
  for (size_t i = 0; i < z.size(); ++i) {
    const size_t kind = std::min<size_t>(i / n, 2);
    z[i] = z[i] * scale[kind] + base[i];
    if (kind == 0) z[i] = kernels::Sigmoid(z[i]) + shape.eps;
    if (kind == 1) z[i] = shape.magnitude * kernels::Sigmoid(z[i]);
    if (kind == 1 && shape.form == Form::kIndependent) z[i] += shape.eps;
  }
  if (z.size() <= 2 * n) return;
  const std::span<float> square = z.subspan(2 * n);
  for (size_t j = 0; j < n; ++j) Softmax(square.subspan(j * n, n));
  for (float& value : square) value += shape.eps;
  Balance(square, n, /*columns=*/true, shape.eps);
  for (int32_t i = 1; i < shape.iterations; ++i) {
    Balance(square, n, /*columns=*/false, shape.eps);
    Balance(square, n, /*columns=*/true, shape.eps);
  }
}

void HyperConnection::Read(ForwardContext& ctx, std::span<const float> h, std::span<float> u) const {
  if (shape.form == Form::kLowRank) return ReadLowRank(ctx, h, u);
  const auto n = static_cast<size_t>(shape.streams), hidden = static_cast<size_t>(shape.hidden);
  const auto width = static_cast<size_t>(shape.width()), count = static_cast<size_t>(fn.weight.out);
  const size_t rows = h.size() / width;
  const std::span<float> flat = ctx.work.normed.Get(static_cast<int64_t>(h.size()));
  const std::span<float> weights = ctx.work.stream_weights.Get(static_cast<int64_t>(rows * count));
  plain.Run(ctx.pool, h, flat);
  fn.Run(ctx.pool, {flat, static_cast<int64_t>(rows), ctx.work.quantized}, weights);
  kernels::ForEachRow(ctx.pool, rows, width, [&](size_t row) {
    const std::span<float> of_row = weights.subspan(row * count, count);
    Weigh(of_row);
    const std::span<float> to = u.subspan(row * hidden, hidden);
    std::ranges::fill(to, 0.0F);
    for (size_t j = 0; j < n; ++j) {
      kernels::MulAdd(of_row[j], h.subspan(row * width + j * hidden, hidden), to);
    }
  });
}

void HyperConnection::ReadLowRank(ForwardContext& ctx, std::span<const float> h, std::span<float> u) const {
  const auto n = static_cast<size_t>(shape.streams), hidden = static_cast<size_t>(shape.hidden);
  const auto width = static_cast<size_t>(shape.width());
  const auto rows = static_cast<int64_t>(h.size() / width);
  const float share = 1 / static_cast<float>(shape.streams);
  const std::span<float> x = ctx.work.normed.Get(static_cast<int64_t>(h.size()));
  plain.Run(ctx.pool, h, x);
  kernels::ScaleColumns(ctx.pool, norm, x);
  const std::span<float> low = ctx.work.scores.Get(rows * shape.rank);
  const std::span<float> mix = ctx.work.shared.Get(static_cast<int64_t>(h.size()));
  {
    const kernels::MatMulInput in(x, rows, ctx.work.quantized);
    if (inject) {
      const std::span<float> weights = ctx.work.stream_weights.Get(rows * shape.streams);
      RunTogether(ctx.pool, in, {{&down, low}, {&inject, weights}});
      for (float& weight : weights) weight = 2 * kernels::Sigmoid(weight * share);
    } else {
      down.Run(ctx.pool, in, low);
    }
  }
  kernels::Scale(ctx.pool, share, low);
  kernels::Silu(ctx.pool, low);
  up.Run(ctx.pool, {low, rows, ctx.work.quantized}, mix);
  kernels::SigmoidMul(ctx.pool, mix, x);
  kernels::ForEachRow(ctx.pool, static_cast<size_t>(rows), width, [&](size_t row) {
    const float* const from = x.data() + row * width;
    float* const to = u.data() + row * hidden;
    for (size_t c = 0; c < hidden; ++c) {
      float sum = from[c];
      for (size_t j = 1; j < n; ++j) sum += from[j * hidden + c];
      to[c] = sum * share;
    }
  });
}

void HyperConnection::Write(ForwardContext& ctx, std::span<const float> o, std::span<float> h) const {
  const auto n = static_cast<size_t>(shape.streams), hidden = static_cast<size_t>(shape.hidden);
  const auto width = static_cast<size_t>(shape.width()), count = static_cast<size_t>(shape.weights());
  const size_t rows = h.size() / width;
  const std::span<const float> weights = ctx.work.stream_weights.Get(static_cast<int64_t>(rows * count));
  kernels::ForEachRow(ctx.pool, rows, width, [&](size_t row) {
    const float* const of_row = weights.data() + row * count;
    const std::span<const float> made = o.subspan(row * hidden, hidden);
    if (shape.form == Form::kMixing) {
      return MixRow(shape, of_row + n, of_row + 2 * n, made.data(), h.data() + row * width);
    }
    const float* const post = shape.form == Form::kIndependent ? of_row + n : of_row;
    for (size_t j = 0; j < n; ++j) {
      kernels::MulAdd(post[j], made, h.subspan(row * width + j * hidden, hidden));
    }
  });
}

HyperConnection BindConnection(const TensorScope& scope, const StreamShape& shape,
                               const ConnectionNames& names, bool writes) {
  const auto ones = [](int64_t size) { return std::vector<float>(static_cast<size_t>(size), 1.0F); };
  HyperConnection connection{.shape = shape};
  RowWidths& widths = scope.widths();
  RowWidths::Grow(widths.hidden, shape.width());
  RowWidths::Grow(widths.stream_weights, shape.weights());
  if (shape.form == Form::kLowRank) {
    connection.plain = {.weight = ones(shape.hidden), .eps = shape.norm_eps};
    connection.norm = scope.Norm(names.norm, shape.width());
    if (!scope.gguf()) {
      for (float& weight : connection.norm) weight += 1;
    }
    connection.down = scope.BindLinear(names.down, shape.rank, shape.width());
    connection.up = scope.BindLinear(names.up, shape.width(), shape.rank);
    if (writes) connection.inject = scope.BindLinear(names.inject, shape.streams, shape.width());
    RowWidths::Grow(widths.scores, shape.rank);
    RowWidths::Grow(widths.shared, shape.width());
    return connection;
  }
  const int64_t weights = writes ? shape.weights() : shape.streams;
  connection.plain = {.weight = ones(shape.width()), .eps = shape.norm_eps};
  connection.fn.weight = scope.InPanels(scope.Rows(names.fn, weights, shape.width()));
  connection.scale = scope.Values(names.scale, !writes ? 1 : shape.form == Form::kMixing ? 3 : 2);
  connection.base = scope.Values(names.base, weights);
  return connection;
}

}  // namespace quire::runner::models
