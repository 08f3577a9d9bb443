#include "runner/engine/memory_need.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "api/base/memory_limit.h"
#include "runner/engine/cache_budget.h"
#include "runner/engine/engine.h"
#include "runner/engine/prefill_budget.h"

namespace quire::runner::engine {
namespace {

// Per number of the vocabulary, what choosing a token takes (sampler::Workspace): four arrays of four bytes,
// candidates and their weights.
constexpr int64_t kSamplingBytes = 4 * 4 + 8 + 8;

}  // namespace

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  file >> size >> resident;
  return file ? resident * ::sysconf(_SC_PAGESIZE) : 0;
}

int64_t ScratchBytes(const models::Model& model, const EngineLimits& limits) {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  const int64_t prefill = limits.prefill_tokens > 0 ? limits.prefill_tokens : StepTarget().tokens_max;
  const int64_t rows = prefill + limits.running_max;
  const int64_t logits = limits.running_max * int64_t{model.vocab_size()} * kFloat;
  return model.scratch_bytes(rows) + logits + model.vocab_size() * kSamplingBytes;
}

api::ipc::Need NeedOf(const models::Model& measured, const EngineLimits& limits, int64_t process,
                      int32_t context_length, int64_t cache_asked, int64_t available) {
  api::ipc::Need need{.weight_bytes = measured.held_bytes(),
                      .scratch_bytes = process + ScratchBytes(measured, limits),
                      .cache_bytes = 0,
                      .cache_least_bytes = 0};
  const int64_t left = std::max<int64_t>(available - need.weight_bytes - need.scratch_bytes, 0);
  const CacheWish wish =
      WishForCaches(measured.cache_layout(), context_length, cache_asked, static_cast<size_t>(left));
  need.cache_bytes = static_cast<int64_t>(wish.bytes);
  need.cache_least_bytes = static_cast<int64_t>(wish.least);
  if (cache_asked > 0) return need;
  // What other programs have is not ours; what idle models have may be.
  const int64_t left_now = api::FindAvailableMemory() - need.weight_bytes;
  const int64_t modest = std::max({left_now / 2, need.cache_bytes / 4, need.cache_least_bytes});
  need.cache_bytes = std::min(need.cache_bytes, modest);
  return need;
}

}  // namespace quire::runner::engine
