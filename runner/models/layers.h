// The layers that model families are built from. A layer holds its weights and its place in the cache layout;
// what it works on comes with the Pass. Rows of activations are float32, [rows, width].
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/layout.h"
#include "cache/write.h"
#include "runner/kernels/attention.h"
#include "runner/kernels/matmul.h"
#include "runner/models/model.h"

namespace quire::runner::models {

// Float memory that grows to the largest size ever asked for and is then reused. Contents are unspecified.
class Scratch {
 public:
  std::span<float> Get(int64_t size);

 private:
  std::vector<float> memory_;
};

// What a model keeps between steps so that a step allocates nothing once it has seen its largest batch.
struct Workspace {
  Scratch hidden, normed, mixed;   // [rows, hidden]
  Scratch q, k, v, attended;       // [rows, heads or kv_heads, head_dim]
  Scratch gates, convolved;        // [rows, 3 * channels], [rows, channels]
  Scratch gate, up;                // [rows, ff]
  Scratch cos, sin;                // [rows, frequencies]
  Scratch outputs;                 // [logit_rows, hidden]
  std::vector<int64_t> positions;  // [rows]
  std::vector<float*> tails;       // [sequences]
  kernels::AttentionPlan attention;
};

// One forward pass, as its layers see it.
struct Pass {
  const Batch& batch;
  cache::StepView& step;
  const cache::Layout& layout;
  ThreadPool& pool;
  Workspace& work;

  int64_t rows() const { return static_cast<int64_t>(batch.tokens.size()); }
};

struct Linear {
  kernels::Matrix weight;
  std::vector<float> bias;  // [out], or empty

  void Run(ThreadPool& pool, std::span<const float> x, int64_t rows, std::span<float> y) const;
};

struct RmsNorm {
  std::vector<float> weight;
  float eps = 0;

  // Rows of weight.size() elements; y may be x.
  void Run(ThreadPool& pool, std::span<const float> x, std::span<float> y) const;
};

// NeoX rotary embedding. Prepare() computes the angles of a pass once; all layers of the pass then use them.
class RotaryEmbedding {
 public:
  RotaryEmbedding() = default;
  // f_i = theta^(-2i / dims), i < dims / 2.
  RotaryEmbedding(double theta, int32_t dims);

  void Prepare(Pass& pass) const;
  // x [rows, heads, head_dim], in place.
  void Apply(Pass& pass, int32_t head_dim, std::span<float> x) const;

 private:
  std::vector<float> frequencies_;
};

// Causal self-attention with grouped KV heads, and norms of each query and key head before the rotation.
struct Attention {
  Linear q, k, v, out;
  RmsNorm q_norm, k_norm;
  const RotaryEmbedding* rotary = nullptr;
  int32_t heads = 0;
  size_t group = 0;   // attention group of the layout
  int32_t layer = 0;  // within the group

  // REQUIRES: rotary->Prepare and pass.work.attention.Prepare have run for this pass.
  void Run(Pass& pass, std::span<const float> x, std::span<float> y) const;
};

// LFM2's gated short convolution: [B, C, x] = in(x); y = out(C * conv(B * x)).
struct ShortConvolution {
  Linear in, out;
  std::vector<float> taps;  // [kernel, channels], oldest first
  std::vector<float> bias;  // [channels], or empty
  int64_t channels = 0;
  int64_t kernel = 0;
  size_t recurrent_layer = 0;  // of the layout

  void Run(Pass& pass, std::span<const float> x, std::span<float> y) const;
};

// down(silu(gate(x)) * up(x)).
struct SwiGlu {
  Linear gate, up, down;

  void Run(Pass& pass, std::span<const float> x, std::span<float> y) const;
};

}  // namespace quire::runner::models
