// HybridCache::CheckInvariants: every count again, from what is alive.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cache/hybrid_cache.h"
#include "cache/hybrid_state.h"

namespace quire::cache {
namespace {

using Outcome = std::expected<void, std::string>;

Outcome CheckState(const HybridState& state) {
  const Pools& pools = state.pools();
  const Position offset = state.offset();
  const auto fail = [&](size_t g, const char* what) {
    return std::unexpected(fmt::format("group {} at offset {}: {}", g, offset, what));
  };
  for (size_t g = 0; g < state.groups.size(); ++g) {
    const HybridState::Group& group = state.groups[g];
    const AttentionGroup& shape = pools.layout.groups[g];
    if (!group.present) {
      if (shape.window == 0 || offset == 0) return fail(g, "absent");
      if (!group.table.empty()) return fail(g, "absent but maps pages");
      continue;
    }
    const Position oldest = OldestVisible(shape, std::min(offset, state.draft_from));
    int64_t next = pools.PageOf(oldest);
    bool dense = true;
    group.table.ForEach(0, INT64_MAX, [&](int64_t index, BlockId) { dense = dense && index == next++; });
    if (!dense) return fail(g, "has a gap or a page before its first");
    const int64_t end = oldest == offset ? pools.PageOf(oldest) : pools.PageEnd(offset);
    if (next != end) return fail(g, "does not map exactly its pages");
  }
  if (offset == 0 && state.slot) return std::unexpected("a slot is held at offset 0");
  if (state.slot && !state.recurrent()) return std::unexpected("a slot is held without recurrent layers");
  return {};
}

}  // namespace

Outcome HybridCache::CheckInvariants() const {
  std::vector<std::vector<uint32_t>> pages(pools_->pages.size());
  std::vector<uint32_t> slots;
  std::vector<uint32_t> stored_slots;
  std::unordered_map<const PageTable::Node*, uint32_t> roots;
  std::unordered_set<const PageTable::Node*> seen;
  const auto count = [](std::vector<uint32_t>& counts, BlockId block) {
    if (counts.size() <= block) counts.resize(block + 1);
    ++counts[block];
  };
  for (const HybridState* state = pools_->states; state != nullptr; state = state->next_) {
    if (auto ok = CheckState(*state); !ok) return ok;
    for (size_t g = 0; g < state->groups.size(); ++g) {
      state->groups[g].table.Audit({.first_visit = [&](const auto* node) { return seen.insert(node).second; },
                                    .leaf_page = [&](BlockId page) { count(pages[g], page); }});
    }
    if (state->slot) count(state->stored() ? stored_slots : slots, state->slot.id());
    if (state->draft_slot) count(slots, state->draft_slot.id());
  }
  for (size_t g = 0; g < pages.size(); ++g) {
    if (auto ok = pools_->pages[g]->CheckInvariants(pages[g]); !ok) return ok;
  }
  if (auto ok = pools_->stored_slots->blocks().CheckInvariants(stored_slots); !ok) return ok;
  return pools_->slots->blocks().CheckInvariants(slots);
}

}  // namespace quire::cache
