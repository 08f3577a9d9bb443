#include "runner/engine/shares/step_plan.h"

#include <algorithm>
#include <tuple>

namespace quire::runner::engine {

std::vector<StepItem> PlanStep(std::span<const SequenceState> sequences, std::span<const PartyState> parties,
                               int32_t prefill_tokens, int32_t scored_tokens) {
  std::vector<StepItem> items;
  std::vector<PartyState> shares(parties.begin(), parties.end());
  PlanStep(sequences, shares, prefill_tokens, scored_tokens, items);
  return items;
}

void PlanStep(std::span<const SequenceState> sequences, std::span<PartyState> shares, int32_t prefill_tokens,
              int32_t scored_tokens, std::vector<StepItem>& items) {
  items.clear();
  std::vector<size_t> prompts;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].backpressured) continue;
    if (sequences[i].prefill_left > 0) {
      prompts.push_back(i);
    } else {
      items.push_back({i, sequences[i].decode_left});
    }
  }
  const auto urgency = [&](size_t i) {
    const SequenceState& state = sequences[i];
    return std::tuple(shares[state.party].virtual_time, state.prefill_left - state.skipped_tokens / kAging,
                      i);
  };
  while (prefill_tokens > 0 && !prompts.empty()) {
    const auto next = std::ranges::min_element(prompts, {}, urgency);
    const SequenceState& state = sequences[*next];
    const int32_t most = state.scored ? std::min(prefill_tokens, scored_tokens) : prefill_tokens;
    const int32_t tokens = std::min(state.prefill_left, most);
    if (tokens > 0) items.push_back({*next, tokens});
    prefill_tokens -= tokens;
    if (state.scored) scored_tokens -= tokens;
    shares[state.party].virtual_time += tokens / shares[state.party].weight;
    prompts.erase(next);
  }
  std::ranges::sort(items, {}, &StepItem::sequence);
}

}  // namespace quire::runner::engine
