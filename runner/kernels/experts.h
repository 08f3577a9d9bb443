// Choosing experts for tokens, and moving rows between the order of the batch and the order of the experts.
//
// Batch-invariant: what a token chooses and what it gets depends on its own row only, not on who else chose
// an expert.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

struct RoutingRule {
  enum class Score : uint8_t { kSoftmax, kSigmoid } score = Score::kSoftmax;
  int64_t experts = 0;
  int64_t chosen = 0;                // per token, <= experts
  std::span<const float> bias = {};  // [experts], added to a score for the choice only; or empty
  bool normalize = true;             // weights are divided by their sum + epsilon
  float epsilon = 0;
  float scale = 1;                         // and multiplied by this
  std::span<const float> per_expert = {};  // [experts], and by this; or empty
};

// Which rows each expert gets. Choice c of row r is number r * chosen + c; a row's choices are in ascending
// order of their experts.
struct Routing {
  std::vector<int32_t> expert;  // [rows * chosen]
  std::vector<float> weight;    // [rows * chosen]
  std::vector<int32_t> begin;   // [experts + 1]: places [begin[e], begin[e + 1]) are expert e's
  std::vector<int32_t> row_at;  // [places] the row that stands there
  std::vector<int32_t> place;   // [rows * chosen] of each choice
};

// scores [rows, experts] are the router's logits, and are used up. The highest scores are chosen, the lower
// index among equals.
void Route(ThreadPool& pool, const RoutingRule& rule, std::span<float> scores, Routing* routing);

// to [places, width] = rows of x [rows, width] in the order of the experts.
void GatherRows(ThreadPool& pool, const Routing& routing, std::span<const float> x, int64_t width,
                std::span<float> to);

// y [rows, width] = sum of each row's choices, weighted, in ascending order of experts. from [places, width].
void CombineRows(ThreadPool& pool, const Routing& routing, int64_t chosen, std::span<const float> from,
                 int64_t width, std::span<float> y);

}  // namespace quire::runner::kernels
