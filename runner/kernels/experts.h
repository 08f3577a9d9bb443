// Choosing experts for tokens, and moving rows between the order of the batch and the order of the experts.
//
// Batch-invariant: what a token chooses and what it gets depends on its own row only, not on who else chose
// an expert.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

constexpr size_t kExpertGroupsMax = 256;

struct RoutingRule {
  // kSparseMixer (Liu et al. 2024): the two highest logits are chosen one after the other; a choice weighs
  // what a softmax gives it over the logits left that differ from it by at most 2 * jitter, relative to the
  // larger magnitude of both. REQUIRES: chosen == 2; nothing of the below but `experts` and `jitter` applies.
  enum class Score : uint8_t { kSoftmax, kSigmoid, kSqrtSoftplus, kSparseMixer } score = Score::kSoftmax;
  int64_t experts = 0;
  int64_t chosen = 0;  // per token, <= experts
  // [rows, chosen] experts, in place of a choice by scores; or empty. The scores weigh them.
  std::span<const int32_t> given = {};
  std::span<const float> bias = {};  // [experts], added to a score for the choice only; or empty
  // The experts are in `groups` groups of consecutive ones. Only those of the `groups_kept` best groups can
  // be chosen. A group is as good as the sum of its `group_best` highest scores, with their bias.
  int64_t groups = 1;
  int64_t groups_kept = 1;
  int64_t group_best = 1;
  bool normalize = true;  // weights are divided by their sum + epsilon
  float epsilon = 0;
  float scale = 1;  // and multiplied by this
  float jitter = 0;
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
// index among equals. REQUIRES: groups divides experts; 1 <= groups_kept <= groups; `chosen` experts are in
// the groups kept.
void Route(ThreadPool& pool, const RoutingRule& rule, std::span<float> scores, Routing* routing);

// to [places, width] = rows of x [rows, width] in the order of the experts.
void GatherRows(ThreadPool& pool, const Routing& routing, std::span<const float> x, int64_t width,
                std::span<float> to);

// Multiplies each place of x [places, width] by its weight, which is 1 afterwards.
void WeighInputs(ThreadPool& pool, int64_t width, std::span<float> x, Routing* routing);

// Adds row e of bias [experts, width] to the places of expert e in x [places, width].
void AddExpertBias(ThreadPool& pool, const Routing& routing, std::span<const float> bias, int64_t width,
                   std::span<float> x);

// y [rows, width] = sum of each row's choices, weighted, in ascending order of experts. from [places, width].
void CombineRows(ThreadPool& pool, const Routing& routing, int64_t chosen, std::span<const float> from,
                 int64_t width, std::span<float> y);

}  // namespace quire::runner::kernels
