// Lightning attention (MiniMax-01): linear attention whose state per head decays at a constant rate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runner/kernels/recurrent_layer.h"
#include "runner/kernels/state_space.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"

namespace quire::runner::models {

//   q, k, v = silu(qkv(x))     S = decay S + k v^T     o = q S
//   y = out(sigmoid(gate(x)) * norm(o))     norm over all heads
struct LightningAttention {
  int64_t heads = 0, head_dim = 0;
  Linear qkv;  // rows [heads, (q, k, v), head_dim]
  Linear gate, out;
  RmsNorm norm;
  std::vector<float> decay;    // [heads]
  size_t recurrent_layer = 0;  // of the layout

  kernels::SsdShape shape() const {
    return {.heads = heads, .head_dim = head_dim, .groups = heads, .state = head_dim};
  }
  // Required of the layout: a matrix per head, and of each draft token what the scan sees.
  cache::RecurrentLayer state() const;
  void GrowWidths(RowWidths& widths) const;
  void Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;
  // Moves the state in `slot` on by the recorded inputs of some tokens.
  void Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
              std::span<const std::byte> inputs, int32_t tokens) const;

 private:
  void Scan(ThreadPool& pool, const kernels::RecurrentLayer& at, std::span<const float> vkq,
            std::span<float> steps, std::span<float> decays, std::span<float> y) const;
};

}  // namespace quire::runner::models
