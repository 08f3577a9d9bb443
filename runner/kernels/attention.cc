#include "runner/kernels/attention.h"

#include <cassert>

#include "runner/kernels/attention_work.h"

namespace quire::runner::kernels {

AttentionTaskFunction& TaskFunctionFor(const cache::AttentionGroup& group) {
  switch (group.element) {
    case cache::ElementType::kF32:
    case cache::ElementType::kF16:
    case cache::ElementType::kBF16:
      return RunFloatTask;
    case cache::ElementType::kQ8_0:
      // Keys of latent attention are rows, in which their values lie.
      return group.latent == 0 ? RunInt8Task : RunFloatTask;
    case cache::ElementType::kI16:
      return RunInt16Task;
  }
  return RunFloatTask;
}

void Attention(ThreadPool& pool, const AttentionLayer& at, AttentionPlan& plan, Scoring scoring,
               std::span<const float> q, std::span<float> out) {
  const Geometry g(at, plan.heads());
  assert(g.dim <= static_cast<size_t>(g.group.latent > 0 ? kMaxLatentKeyDim : kMaxHeadDim) &&
         g.value_dim <= kMaxHeadDim);
  [[maybe_unused]] const size_t queries = static_cast<size_t>(at.row_begin.back()) * g.heads;
  assert(q.size() == queries * g.dim && out.size() == queries * g.value_dim);
  assert(scoring.slopes.empty() || scoring.slopes.size() == g.heads);
  assert(scoring.sinks.empty() || scoring.sinks.size() == g.heads);
  const auto items = plan.items();
  const auto run = TaskFunctionFor(g.group);
  AttentionWork work{.at = at, .geometry = g, .scoring = scoring, .q = q.data(), .out = out.data()};
  const auto pieces = plan.Divide(at, pool.threads());
  if (pieces.empty()) {
    return pool.ParallelFor(items.size(), [&](size_t task) { run(work, items[task], {}); });
  }
  pool.ParallelFor(pieces.size(),
                   [&](size_t task) { run(work, items[pieces[task].item], pieces.subspan(task, 1)); });
  work.pieces_are_done = true;
  pool.ParallelFor(items.size(), [&](size_t task) { run(work, items[task], plan.PiecesOf(task)); });
}

}  // namespace quire::runner::kernels
