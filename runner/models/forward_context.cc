#include "runner/models/forward_context.h"

namespace quire::runner::models {

std::span<float> Scratch::Get(int64_t size) {
  const auto floats = static_cast<size_t>(size);
  // Afresh: what is in it need not be carried over, and exactly as much as is asked for is taken.
  if (memory_.size() < floats) {
    memory_ = std::vector<float>();
    memory_.resize(floats);
  }
  return std::span(memory_).first(floats);
}

int64_t Workspace::bytes() const {
  int64_t total = quantized.bytes() + selection.bytes();
  for (const Scratch* part : {&hidden,
                              &normed,
                              &mixed,
                              &q,
                              &k,
                              &v,
                              &attended,
                              &attention_gate,
                              &projected,
                              &convolved,
                              &z,
                              &decay,
                              &beta,
                              &gate,
                              &up,
                              &scores,
                              &expert_in,
                              &expert_out,
                              &shared,
                              &outputs,
                              &per_layer,
                              &per_layer_context,
                              &index_queries,
                              &index_keys,
                              &index_weights,
                              &altup,
                              &stream_weights}) {
    total += part->bytes();
  }
  return total;
}

void RowWidths::GrowAttention(int64_t queries, int64_t keys, int64_t head_dim, bool gated) {
  Grow(q, queries);
  Grow(attended, queries);
  Grow(k, keys);
  Grow(angles, head_dim);
  if (!gated) return;
  Grow(projected, 2 * queries);
  Grow(attention_gate, queries);
}

void RowWidths::GrowExperts(int64_t experts, int64_t chosen, int64_t in, int64_t width) {
  Grow(scores, experts);
  Grow(expert, chosen * in);
  Grow(ff, chosen * width);
}

int64_t RowWidths::BytesFor(int64_t rows) const {
  const int64_t floats = 3 * hidden + q + 2 * k + attention_gate + attended + projected + convolved + z +
                         2 * decay + 2 * ff + scores + gathered + expert + shared + outputs + 2 * per_layer +
                         index + index_chosen + altup + stream_weights + angles;
  return rows *
         (floats * static_cast<int64_t>(sizeof(float)) + kernels::QuantizedActivations::BytesOf(quantized));
}

void ForwardContext::Prepare(int32_t heads, std::span<const int32_t> group_heads) const {
  work.positions.clear();
  for (size_t i = 0; i + 1 < batch.row_begin.size(); ++i) {
    const int64_t count = batch.row_begin[i + 1] - batch.row_begin[i];
    for (int64_t row = 0; row < count; ++row) work.positions.push_back(step.offset(i) + row);
  }
  work.plans.resize(layout.groups.size());
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    work.plans[g].Prepare(batch.row_begin, g < group_heads.size() ? group_heads[g] : heads, layout.groups[g],
                          pool.threads());
  }
}

}  // namespace quire::runner::models
