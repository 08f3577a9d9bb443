// Feed-forward layers: SwiGLU, GeGLU, and plain ones.
#pragma once

#include <cstdint>
#include <span>

#include "runner/kernels/elementwise.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"
#include "runner/models/low_rank.h"

namespace quire::runner::models {

// kGelu is the tanh approximation, kGeluErf the exact function. kSwigluOai: kernels::ClampedSwiglu, which has
// a limit.
enum class Activation : uint8_t { kSilu, kGelu, kGeluErf, kRelu, kSwigluOai };
enum class PlainActivation : uint8_t { kGelu, kGeluErf, kSilu, kSquaredRelu, kXielu };

// gate = activation(gate) * up.
void Gate(ThreadPool& pool, Activation activation, std::span<const float> up, std::span<float> gate,
          float limit = 0);

// down(activation(gate(x)) * up(x)).
struct GatedMlp {
  Linear gate, up, down;
  Activation activation = Activation::kSilu;
  float limit = 0;                             // of an activation that has one
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
