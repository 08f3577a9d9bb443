#include "runner/engine/step_plan.h"

#include <algorithm>

namespace quire::runner::engine {

std::vector<StepItem> PlanStep(std::span<const SequenceState> sequences, int32_t prefill_tokens) {
  std::vector<StepItem> items;
  std::vector<size_t> prompts;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].prefill_left > 0) {
      prompts.push_back(i);
    } else if (!sequences[i].reader_full) {
      items.push_back({i, 1});
    }
  }
  const auto urgency = [&](size_t i) {
    return int64_t{sequences[i].prefill_left} - int64_t{kAgeingTokens} * sequences[i].steps_waited;
  };
  std::ranges::stable_sort(prompts, {}, urgency);
  for (const size_t i : prompts) {
    if (prefill_tokens <= 0) break;
    const int32_t tokens = std::min(sequences[i].prefill_left, prefill_tokens);
    items.push_back({i, tokens});
    prefill_tokens -= tokens;
  }
  std::ranges::sort(items, {}, &StepItem::sequence);
  return items;
}

}  // namespace quire::runner::engine
