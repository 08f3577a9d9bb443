// The gated delta net of Qwen3-Next, Qwen3.5 and OLMo-Hybrid: a linear attention whose state is a matrix per head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "runner/kernels/gated_delta.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"

namespace quire::runner::models {

// The outputs of several maps side by side: to [rows, all of them]. Uses ctx.work.convolved.
void RunSideBySide(ForwardContext& ctx, const kernels::MatMulInput& x,
                   std::initializer_list<const Linear*> parts, std::span<float> to);

// What a delta net's convolution is, and its rows of one step: mixed, and as room convolved, [rows, shape.channels()].
struct DeltaConvolution {
  int64_t kernel = 0;
  std::span<const float> taps;  // [kernel, shape.channels()], oldest first
};
struct DeltaRows {
  std::span<const float> mixed;
  std::span<float> convolved;
  std::span<const float> decay, beta;
  std::span<float> y;
};
// y = gated delta rule(silu(conv(mixed)), decay, beta).
void UpdateDelta(ThreadPool& pool, const kernels::RecurrentLayer& at, const DeltaConvolution& convolution,
                 const kernels::GatedDeltaShape& shape, const DeltaRows& rows);
// The same over the recorded inputs of some tokens, for the state in `slot`.
void ReplayDelta(const cache::Layout& layout, size_t recurrent_layer, ThreadPool& pool, std::byte* slot,
                 std::span<const std::byte> inputs, int32_t tokens, const DeltaConvolution& convolution,
                 const kernels::GatedDeltaShape& shape);

//   q, k, v = silu(conv(qkv(x)))     q, k of length 1 per head
//   decay = exp(rate * softplus(a(x) + time_bias))     beta = beta_scale * sigmoid(b(x))
//   o = gated delta rule(q, k, v, decay, beta)
//   y = out(norm(o) * silu(z(x)))    norm per head
struct GatedDeltaNet {
  kernels::GatedDeltaShape shape;
  // Rows as named, or grouped by key head where a checkpoint has them that way: [q, k, v.., z..] and [b..,
  // a..] of each key head and the value heads that share it; or q, k and v in matrices of their own, with z.
  Linear qkv, z;  // or
  Linear qkvz;    // or
  Linear query, key, value;
  Linear a, b;  // or
  Linear ba;
  std::vector<float> taps;  // [kernel, shape.channels()], oldest first
  int64_t kernel = 0;
  std::vector<float> rate, time_bias;  // [value_heads]
  float beta_scale = 1;                // 2: eigenvalues of a head's transition may be negative
  RmsNorm norm;                        // [value_dim]
  Linear out;
  size_t recurrent_layer = 0;  // of the layout

  // Required of the layout: the convolution's last inputs, a matrix per value head, and of each draft
  // token the convolution's input and the two gates.
  cache::RecurrentLayer state() const;
  void Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;
  // Moves the state in `slot` on by the recorded inputs of some tokens.
  void Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
              std::span<const std::byte> inputs, int32_t tokens) const;

 private:
  void Project(ForwardContext& ctx, const kernels::MatMulInput& x, std::span<float> mixed,
               std::span<float> gate) const;
  void ProjectGates(ForwardContext& ctx, const kernels::MatMulInput& x, std::span<float> decay,
                    std::span<float> beta) const;
};

}  // namespace quire::runner::models
