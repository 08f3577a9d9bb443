#include "runner/engine/process/memory_estimate.h"

#include <algorithm>

#include "runner/engine/process/machine_memory.h"
#include "runner/engine/shares/prefill_budget.h"
#include "runner/engine/steps/cache_budget.h"
#include "runner/engine/steps/engine_state.h"
#include "runner/engine/steps/prompt_report.h"
#include "runner/kernels/attention.h"
#include "runner/kernels/numa_plan.h"

namespace quire::runner::engine {
namespace {

// Per number of the vocabulary, what choosing a token takes (sampler::Workspace): four arrays of four bytes,
// candidates, their weights, and ranked candidates; twice what is sorted.
constexpr int64_t kSamplingBytes = 4 * 4 + 2 * 8 + 8 + 2 * 16;

// What a task of attention touches of its thread's stack, and a little.
constexpr int64_t kStackBytes = 640 << 10;

}  // namespace

int64_t ThreadBytes(const models::Model& model) {
  int64_t bytes = ComputeThreads() * kStackBytes;
  for (const cache::AttentionGroup& group : model.cache_layout().groups) {
    bytes += kernels::AttentionPlan::SumsBytesMax(group, ComputeThreads(), model.context_length());
  }
  return bytes;
}

int64_t ScratchBytes(const models::Model& model, const EngineLimits& limits) {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  const int64_t prefill = limits.prefill_tokens > 0 ? limits.prefill_tokens : StepTarget().tokens_max;
  const int64_t rows = prefill + limits.running_max;
  const int64_t logit_rows = limits.running_max + ScoredTokensMax(model.vocab_size());
  const int64_t logits = logit_rows * model.vocab_size() * kFloat;
  return model.scratch_bytes(rows) + logits + model.vocab_size() * kSamplingBytes + ThreadBytes(model);
}

api::ipc::MemoryEstimate EstimateMemory(const models::Model& model, const EngineLimits& limits,
                                        int64_t process, int32_t context_length,
                                        int64_t requested_cache_bytes, int64_t available,
                                        size_t cache_needed) {
  api::ipc::MemoryEstimate estimate{.weight_bytes = model.resident_bytes(),
                                    .scratch_bytes = process + ScratchBytes(model, limits),
                                    .cache_bytes = 0,
                                    .cache_min_bytes = 0,
                                    .streamed_bytes = model.streamed_bytes()};
  const int64_t left = std::max<int64_t>(available - estimate.weight_bytes - estimate.scratch_bytes, 0);
  const CacheSizing sizing =
      ChooseCacheSize(model.cache_layout(), context_length, requested_cache_bytes, static_cast<size_t>(left));
  estimate.cache_bytes = static_cast<int64_t>(std::max(sizing.bytes, cache_needed));
  estimate.cache_min_bytes = static_cast<int64_t>(std::max(sizing.min_bytes, cache_needed));
  if (requested_cache_bytes > 0) return estimate;
  // Memory of other programs is not available; memory of idle models may be.
  const int64_t left_now = AvailableMemoryBytes() - estimate.weight_bytes;
  const int64_t modest = std::max({left_now / 2, estimate.cache_bytes / 4, estimate.cache_min_bytes});
  estimate.cache_bytes = std::min(estimate.cache_bytes, modest);
  return estimate;
}

}  // namespace quire::runner::engine
