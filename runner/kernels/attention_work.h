// What the tasks of one layer's attention have in common, and the functions that run a task: one for each way
// to multiply. For attention.cc and what it is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cache/layout.h"
#include "runner/kernels/attention.h"

namespace quire::runner::kernels {

inline constexpr auto kItemRows = static_cast<size_t>(AttentionPlan::kItemRows);
inline constexpr auto kItemNumbers = static_cast<size_t>(AttentionPlan::kItemNumbers);
inline constexpr cache::Position kSegment = AttentionPlan::kSegment;

// The sizes that every part of a layer's work needs.
struct Geometry {
  explicit Geometry(const AttentionLayer& at, int32_t heads_total)
      : group(at.layout->groups[at.group]),
        heads(static_cast<size_t>(heads_total)),
        kv_heads(static_cast<size_t>(group.kv_heads)),
        share(heads / kv_heads),
        dim(static_cast<size_t>(group.head_dim)),
        value_dim(static_cast<size_t>(group.value_dim())),
        page_tokens(at.layout->page_tokens) {}

  const cache::AttentionGroup& group;
  size_t heads, kv_heads, share, dim, value_dim;
  cache::Position page_tokens;
};

// What the tasks of a layer have in common.
struct AttentionWork {
  const AttentionLayer& at;
  const Geometry& geometry;
  Scoring scoring;
  const float* q;
  float* out;
  bool pieces_are_done = false;
};

// All of an item; with pieces the first of them, or when they are done what follows from them. On any thread.
using AttentionTaskFunction = void(const AttentionWork& work, const AttentionPlan::Item& item,
                                   std::span<const AttentionPlan::Piece> pieces);
AttentionTaskFunction RunFloatTask;  // kF32, kF16, kBF16; kQ8_0 of latent attention
AttentionTaskFunction RunInt16Task;  // kI16
AttentionTaskFunction RunInt8Task;   // kQ8_0
AttentionTaskFunction& TaskFunctionFor(const cache::AttentionGroup& group);

}  // namespace quire::runner::kernels
