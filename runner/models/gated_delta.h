// The gated delta net of Qwen3-Next, Qwen3.5 and OLMo-Hybrid: a linear attention whose state is a matrix per
// head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "runner/kernels/gated_delta.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {

// The outputs of several maps side by side: to [rows, all of them]. Uses ctx.work.convolved.
void RunSideBySide(ForwardContext& ctx, const kernels::MatMulInput& x,
                   std::initializer_list<const Linear*> parts, std::span<float> to);

// What delta nets share: the short convolution of q, k and v, and the rule.
struct DeltaRule {
  kernels::GatedDeltaShape shape;
  std::vector<float> taps;  // [kernel, shape.channels()], oldest first
  int64_t kernel = 0;
  size_t recurrent_layer = 0;  // of the layout

  // Taps of q, k and v that are stored apart.
  void BindTaps(const TensorScope& scope, TensorName q, TensorName k, TensorName v);
  // Required of the layout: the convolution's last inputs, a matrix per value head, and of each draft
  // token the convolution's input and the gates.
  cache::RecurrentLayer state() const;
  void GrowWidths(RowWidths& widths) const;
  // gated delta rule(silu(conv(mixed)), decay, beta): [rows, shape.values()], in ctx.work.attended.
  // mixed [rows, shape.channels()], decay [rows, shape.decays()], beta [rows, shape.value_heads].
  std::span<float> Update(ForwardContext& ctx, std::span<const float> mixed, std::span<const float> decay,
                          std::span<const float> beta) const;
  // Moves the state in `slot` on by the recorded inputs of some tokens.
  void Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
              std::span<const std::byte> inputs, int32_t tokens) const;
};

//   q, k, v = silu(conv(qkv(x)))     q, k of length 1 per head
//   decay = exp(rate * softplus(a(x) + time_bias))     beta = beta_scale * sigmoid(b(x))
//   o = gated delta rule(q, k, v, decay, beta)
//   y = out(norm(o) * silu(z(x)))    norm per head
struct GatedDeltaNet : DeltaRule {
  // Rows as named, or grouped by key head where a checkpoint has them that way: [q, k, v.., z..] and [b..,
  // a..] of each key head and the value heads that share it; or q, k and v in matrices of their own, with z.
  Linear qkv, z;  // or
  Linear qkvz;    // or
  Linear query, key, value;
  Linear a, b;  // or
  Linear ba;
  std::vector<float> rate, time_bias;  // [value_heads]
  float beta_scale = 1;                // 2: eigenvalues of a head's transition may be negative
  bool sigmoid_gate = false;           // of z, in place of silu
  RmsNorm norm;                        // [value_dim]
  Linear out;

  void GrowWidths(RowWidths& widths) const;
  void Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;

 private:
  // The rows of a step's tokens.
  struct Rows {
    std::span<float> mixed;        // [rows, shape.channels()]
    std::span<float> gate;         // [rows, shape.values()]
    std::span<float> decay, beta;  // [rows, shape.value_heads]
  };
  void Project(ForwardContext& ctx, const kernels::MatMulInput& x, const Rows& to) const;
  // From rows grouped by key head.
  void Deinterleave(std::span<const float> grouped, const Rows& to) const;
  void DeinterleaveGates(std::span<const float> grouped, const Rows& to) const;
};

}  // namespace quire::runner::models
