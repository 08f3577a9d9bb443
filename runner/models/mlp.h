// Feed-forward layers: SwiGLU, GeGLU, and plain ones.
#pragma once

#include <cstdint>
#include <span>

#include "runner/kernels/elementwise.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"
#include "runner/models/low_rank.h"

namespace quire::runner::models {

// kGelu is the tanh approximation, kGeluErf the exact function.
enum class Activation : uint8_t { kSilu, kGelu, kGeluErf, kRelu, kSquaredRelu };
enum class PlainActivation : uint8_t { kGelu, kGeluErf, kSilu, kRelu, kSquaredRelu, kXielu };

// gate = activation(gate) * up, or what `clamp` makes of both where it has a limit.
void Gate(ThreadPool& pool, Activation activation, const kernels::SwigluClamp& clamp,
          std::span<const float> up, std::span<float> gate);

// down(norm(Gate(gate(x), up(x)))).
struct GatedMlp {
  Linear gate, up, down;
  Activation activation = Activation::kSilu;
  kernels::SwigluClamp clamp = {};
  RmsNorm norm = {};                           // or none
  float gate_scale = 1;                        // of gate(x)
  LowRank gate_adapter = {}, up_adapter = {};  // added to gate(x), unscaled, and up(x)

  void Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;
};

// down(activation(up(x))).
struct PlainMlp {
  Linear up, down;
  PlainActivation activation = PlainActivation::kGelu;
  kernels::XieluShape xielu = {};  // stored with each layer

  void Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;
};

}  // namespace quire::runner::models
