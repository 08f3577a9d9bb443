// The two parts of an RWKV-7 layer: the time mix, whose state is a matrix per head, and the channel mix. Both
// see a row beside the one before it (token shift).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runner/kernels/rwkv.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"

namespace quire::runner::models {

// up(activation(down(x))) + bias.
struct RwkvLowRank {
  Linear down, up;
  std::vector<float> bias;

  explicit operator bool() const { return static_cast<bool>(down); }
};

//   x_i = x + lerp_i (previous x - x)      for i of r, w, k, v, a, g
//   w = exp(-exp(-0.5) sigmoid(decay(x_w)))     tanh within
//   v = value(x_v), mixed towards the first layer's with sigmoid(mix(x_v))
//   a = sigmoid(rate(x_a));  g = gate(x_g), sigmoid within
//   kk = key(x_k) removal, of length 1 per head;  k = key(x_k) (1 + (a - 1) key_rate)
//   S = S (diag(w) - kk (a kk)^T) + v k^T;  y = out((norm(S r) + (r bonus . k) v) g)
struct RwkvTimeMix {
  enum Lerp : uint8_t { kR, kW, kK, kV, kA, kG, kLerps };

  kernels::RwkvShape shape;
  int64_t shifts = 2;  // token shifts of the layer; the first one is the time mix's
  std::array<std::vector<float>, kLerps> lerp;
  Linear receptance, key, value, out;
  RwkvLowRank decay, rate, mix, gate;  // mix: not of the first layer; gate: some models have none
  std::vector<float> removal, key_rate, bonus;
  float least_length = 0, inside_length = 0;  // of keys to be removed: RwkvKeyArgs
  std::vector<float> norm_weight, norm_bias;  // empty where a model has no such norm
  float norm_eps = 0;
  size_t recurrent_layer = 0;  // of the layout

  // Required of the layout: a column of the shifts' last rows, a matrix per head, and of each draft token
  // those rows and what its update reads beside the state.
  cache::RecurrentLayer state() const;
  void GrowWidths(RowWidths& widths) const;
  kernels::RecurrentLayer At(const ForwardContext& ctx) const;
  // Keeps the values of the layer without `mix` in ctx.work.shared for the others.
  void Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;
  // Moves the state in `slot` on by the recorded inputs of some tokens.
  void Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
              std::span<const std::byte> inputs, int32_t tokens) const;

 private:
  void ProjectValues(ForwardContext& ctx, const kernels::MatMulInput& x, std::span<float> v) const;
};

// value(relu(key(x + lerp (previous x - x)))^2).
struct RwkvChannelMix {
  std::vector<float> lerp;
  Linear key, value;

  // `at`: the layer's recurrent part, whose second token shift is this one's.
  void Run(ForwardContext& ctx, const kernels::RecurrentLayer& at, std::span<const float> x,
           std::span<float> y) const;
};

}  // namespace quire::runner::models
