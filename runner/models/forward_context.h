// One forward pass, as the layers see it, and the memory it works in. Rows of activations are float32,
// [rows, width].
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/layout.h"
#include "cache/write.h"
#include "runner/kernels/attention.h"
#include "runner/kernels/experts.h"
#include "runner/kernels/matmul.h"
#include "runner/kernels/selection.h"
#include "runner/models/model.h"

namespace quire::runner::models {

// Memory that grows to the largest size ever asked for and is then reused. Contents are unspecified.
class Scratch {
 public:
  std::span<float> Get(int64_t size);
  int64_t bytes() const { return static_cast<int64_t>(memory_.capacity() * sizeof(float)); }

 private:
  std::vector<float> memory_;
};

// Buffers that a model reuses between steps, so that a step allocates nothing after the largest batch.
struct Workspace {
  Scratch hidden, normed, mixed;                  // [rows, hidden], of all streams
  Scratch q, k, v, attended, attention_gate;      // [rows, heads or kv_heads, head_dim]
  Scratch projected, convolved, z, decay, beta;   // of the recurrent layers, see there
  Scratch gate, up;                               // [rows, ff]
  Scratch scores, expert_in, expert_out, shared;  // of the experts, see there
  Scratch outputs;                                // [logit_rows or hidden_rows, hidden]
  Scratch stream_weights;                         // of residual_streams.h
  Scratch per_layer, per_layer_context;           // [rows, layers, per-layer width]
  Scratch index_queries, index_keys,
      index_weights;                          // of an indexer: [rows, heads, dim], [rows, dim], [rows, heads]
  Scratch altup;                              // [streams, rows, hidden]
  std::vector<int64_t> positions;             // [rows]
  std::vector<kernels::AttentionPlan> plans;  // [attention groups]
  kernels::Routing routing;
  kernels::Selection selection;             // of the last layer with an indexer
  std::vector<kernels::MatMulPart> parts;   // experts with rows; heads of latent attention
  std::vector<int32_t> head_begin;          // [heads + 1] of latent attention: rows of each head
  kernels::QuantizedActivations quantized;  // the rows that linear layers see just now

  int64_t bytes() const;  // taken so far, but for what is small
};

// Floats that one row takes in the parts of a Workspace, each the maximum over all layers. They give the
// memory of a step before it runs.
struct RowWidths {
  int64_t hidden = 0;  // of each of the three residual parts, of all streams
  int64_t stream_weights = 0;
  int64_t q = 0, k = 0, attention_gate = 0, attended = 0;
  int64_t projected = 0, convolved = 0, z = 0, decay = 0;   // decay: beta too
  int64_t ff = 0;                                           // gate and up, each
  int64_t scores = 0, expert = 0, shared = 0, outputs = 0;  // expert: of the results of all that are chosen
  int64_t gathered = 0;                                     // inputs of experts, one for each that is chosen
  int64_t per_layer = 0, altup = 0;
  int64_t index = 0, index_chosen = 0;  // of an indexer: its rows, and the keys it chooses for one
  int64_t angles = 0;
  int64_t quantized = 0;  // numbers that go into products with quantized weights

  static void Grow(int64_t& width, int64_t to) { width = std::max(width, to); }
  void GrowAttention(int64_t queries, int64_t keys, int64_t head_dim, bool gated);
  void GrowExperts(int64_t experts, int64_t chosen, int64_t in, int64_t width);

  int64_t BytesFor(int64_t rows) const;
};

struct ForwardContext {
  const Batch& batch;
  const cache::StepView& step;
  const cache::Layout& layout;
  ThreadPool& pool;
  Workspace& work;

  int64_t rows() const { return static_cast<int64_t>(batch.tokens.size()); }
  // x [rows(), width] on its way into linear layers.
  kernels::MatMulInput Input(std::span<const float> x) const { return {x, rows(), work.quantized}; }

  // Fills work.positions and work.plans. To be called before any layer runs. `heads`: of queries;
  // `group_heads`: of each of the first attention groups, where they differ.
  void Prepare(int32_t heads, std::span<const int32_t> group_heads = {}) const;
};

}  // namespace quire::runner::models
