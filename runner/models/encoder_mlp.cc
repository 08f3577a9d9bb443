#include "runner/models/encoder_mlp.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/encoder_ops.h"
#include "runner/kernels/float_panels.h"
#include "runner/kernels/panels.h"
#include "runner/kernels/row_epilogue.h"

namespace quire::runner::models {
namespace {

// y [places, out] = rows of x times their expert's matrix.
void RunEncoderExperts(ThreadPool& pool, std::span<const kernels::Matrix> experts,
                       const kernels::MatMulInput& x, EncoderExperts::Work& work, std::span<float> y) {
  work.parts.clear();
  for (size_t e = 0; e < experts.size(); ++e) {
    const int64_t begin = work.routing.begin[e], end = work.routing.begin[e + 1];
    if (begin != end) work.parts.push_back({.weight = experts[e], .begin = begin, .end = end});
  }
  kernels::MatMulParts(pool, x, work.parts, y);
}

// A checkpoint stores an expert's second matrix with inputs before outputs.
kernels::Matrix Turned(const TensorScope& scope, const kernels::Matrix& stored,
                       std::vector<std::unique_ptr<std::byte[]>>& made) {
  kernels::Matrix matrix{.data = stored.data, .type = stored.type, .out = stored.in, .in = stored.out};
  if (scope.failed() || scope.metadata_only()) return scope.InPanels(matrix, WeightUse::kMade);
  const auto out = static_cast<size_t>(matrix.out), in = static_cast<size_t>(matrix.in);
  const size_t bytes = weights::RowBytes(stored.type, 1);
  auto memory = std::make_unique_for_overwrite<std::byte[]>(out * in * bytes);
  for (size_t o = 0; o < out; ++o) {
    for (size_t i = 0; i < in; ++i) {
      std::memcpy(memory.get() + (o * in + i) * bytes, stored.data + (i * out + o) * bytes, bytes);
    }
  }
  matrix.data = memory.get();
  matrix = scope.InPanels(matrix, WeightUse::kMade);
  if (matrix.panels == nullptr) made.push_back(std::move(memory));
  return matrix;
}

void GeluQuick(std::span<float> x) {
  constexpr float kSlope = 1.702F;
  for (float& value : x) value *= kSlope;
  kernels::Silu(x);
  for (float& value : x) value /= kSlope;
}

}  // namespace

void Activate(ThreadPool& pool, EncoderActivation activation, std::span<float> x) {
  switch (activation) {
    case EncoderActivation::kGeluErf:
      return kernels::GeluErf(pool, x);
    case EncoderActivation::kGeluTanh:
      return kernels::Gelu(pool, x);
    case EncoderActivation::kGeluQuick:
      return GeluQuick(x);
    case EncoderActivation::kRelu:
      return kernels::Relu(pool, x);
    case EncoderActivation::kSilu:
      return kernels::Silu(pool, x);
  }
}

void Activate(EncoderActivation activation, std::span<float> x) {
  switch (activation) {
    case EncoderActivation::kGeluErf:
      return kernels::GeluErf(x);
    case EncoderActivation::kGeluTanh:
      return kernels::Gelu(x);
    case EncoderActivation::kGeluQuick:
      return GeluQuick(x);
    case EncoderActivation::kRelu:
      return kernels::Relu(x);
    case EncoderActivation::kSilu:
      return kernels::Silu(x);
  }
}

void GateWith(EncoderActivation activation, std::span<const float> up, std::span<float> gate) {
  switch (activation) {
    case EncoderActivation::kGeluErf:
      return kernels::GeluErfMul(up, gate);
    case EncoderActivation::kGeluTanh:
      return kernels::GeluMul(up, gate);
    case EncoderActivation::kGeluQuick:
      GeluQuick(gate);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i];
      return;
    case EncoderActivation::kSilu:
      return kernels::SiluMul(up, gate);
    case EncoderActivation::kRelu:
      kernels::Relu(gate);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i];
      return;
  }
}

void EncoderExperts::Run(ThreadPool& pool, EncoderActivation activation, int64_t rows,
                         std::span<const float> x, Work& work, kernels::QuantizedActivations& quantized,
                         std::span<float> y) const {
  const int64_t hidden = up[0].in, width = up[0].out, places = rows * chosen;
  const auto experts = static_cast<int64_t>(up.size());
  const std::span<float> scores = work.scores.Get(rows * experts);
  router.Run(pool, {x, rows, quantized}, scores);
  kernels::Route(pool, {.experts = experts, .chosen = chosen, .normalize = false}, scores, &work.routing);
  const std::span<float> in = work.in.Get(places * hidden), out = work.out.Get(places * hidden),
                         wide = work.wide.Get(places * width);
  kernels::GatherRows(pool, work.routing, x, hidden, in);
  RunEncoderExperts(pool, up, {in, places, quantized, work.routing.begin}, work, wide);
  Activate(pool, activation, wide);
  RunEncoderExperts(pool, down, {wide, places, quantized, work.routing.begin}, work, out);
  kernels::CombineRows(pool, work.routing, chosen, out, hidden, y);
  for (size_t i = 0; !bias.empty() && i < y.size(); ++i) y[i] += bias[i % bias.size()];
}

EncoderExperts BindEncoderExperts(const TensorScope& layer, const EncoderExpertsForm& form, int64_t hidden,
                                  int64_t width) {
  EncoderExperts made;
  made.chosen = form.chosen;
  made.router = layer.BindLinear({"mlp.router.layer", "ffn_gate_inp"}, form.experts, hidden);
  made.up.reserve(static_cast<size_t>(form.experts));
  made.down.reserve(static_cast<size_t>(form.experts));
  if (layer.gguf()) {
    for (const kernels::Matrix& up : layer.Stacked({"", "ffn_up_exps.weight"}, form.experts, width, hidden)) {
      made.up.push_back(layer.InPanels(up));
    }
    for (const kernels::Matrix& down :
         layer.Stacked({"", "ffn_down_exps.weight"}, form.experts, hidden, width)) {
      made.down.push_back(layer.InPanels(down));
    }
    return made;
  }
  const int64_t all = form.experts * width;
  const kernels::Matrix up = layer.Rows({"mlp.experts.mlp.w1", ""}, all, hidden);
  const kernels::Matrix down = layer.Rows({"mlp.experts.mlp.w2", ""}, all, hidden);
  if (layer.failed()) return made;
  if (!kernels::IsFloat(down.type)) {
    layer.Fail({"mlp.experts.mlp.w2", ""}, "is quantized across the inputs of its experts");
    return made;
  }
  for (int64_t e = 0; e < form.experts; ++e) {
    made.up.push_back(layer.InPanels(kernels::RowsOf(up, e * width, (e + 1) * width)));
    made.down.push_back(Turned(layer, kernels::RowsOf(down, e * width, (e + 1) * width), made.made));
  }
  if (layer.Has({"mlp.experts.bias", ""})) made.bias = layer.Values({"mlp.experts.bias", ""}, hidden);
  return made;
}

}  // namespace quire::runner::models
