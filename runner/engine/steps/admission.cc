#include "runner/engine/steps/admission.h"

#include <algorithm>
#include <tuple>

namespace quire::runner::engine {

size_t SequenceBytes(const cache::Layout& layout, int64_t tokens, int64_t batch) {
  size_t bytes = layout.recurrent.empty() ? 0 : cache::SlotBytes(layout);
  for (size_t group = 0; group < layout.groups.size(); ++group) {
    const int64_t window = layout.groups[group].window;
    // A window's first and last page may be partly used.
    const int64_t max_tokens = window > 0 ? std::min(tokens, window + batch + layout.page_tokens) : tokens;
    const int64_t pages = (max_tokens + layout.page_tokens - 1) / layout.page_tokens;
    bytes += static_cast<size_t>(pages) * cache::PageBytes(layout, group);
  }
  return bytes;
}

size_t SharedBytes(const cache::Layout& layout, int64_t tokens) {
  size_t bytes = 0;
  for (size_t group = 0; group < layout.groups.size(); ++group) {
    const int64_t pages = (tokens + layout.page_tokens - 1) / layout.page_tokens;
    if (layout.groups[group].window == 0)
      bytes += static_cast<size_t>(pages) * cache::PageBytes(layout, group);
  }
  return bytes;
}

std::optional<size_t> NextToAdmit(std::span<const WaitingState> waiting, size_t bytes_left,
                                  bool anyone_running) {
  const auto order = [&](size_t i) {
    return std::tuple(!waiting[i].preempted, waiting[i].preempted ? 0 : waiting[i].virtual_time,
                      !waiting[i].preempted && waiting[i].has_place, waiting[i].arrival);
  };
  std::optional<size_t> next;
  for (size_t i = 0; i < waiting.size(); ++i) {
    if (!waiting[i].follows && !waiting[i].crowded && (!next || order(i) < order(*next))) next = i;
  }
  if (next && anyone_running && waiting[*next].bytes > bytes_left) return std::nullopt;
  return next;
}

int32_t CommonPrefix(std::span<const api::TokenId> a, std::span<const api::TokenId> b) {
  return static_cast<int32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

std::optional<Leader> FindLeader(std::span<const api::TokenId> prompt, int32_t reusable,
                                 std::span<const RunningPrefix> running) {
  std::optional<Leader> leader;
  int32_t longest = reusable + kLeadMin - 1;
  for (const RunningPrefix& other : running) {
    const int32_t shared =
        std::min(CommonPrefix(prompt, other.tokens), static_cast<int32_t>(prompt.size()) - 1);
    if (shared <= longest || other.computed >= shared) continue;
    longest = shared;
    leader = Leader{other.id, shared};
  }
  return leader;
}

}  // namespace quire::runner::engine
