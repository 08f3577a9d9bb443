#include "runner/constraint/mask_turns.h"

#include <algorithm>

namespace quire::runner::constraint {

bool MaskTurns::Prepare(std::span<const MaskRequest> requests, uint64_t steps) {
  const auto has = [](std::span<const MaskRequest> list, const MaskRequest& one) {
    return std::ranges::find(list, one) != list.end();
  };
  const auto is_cached = [](const MaskRequest& one) {
    uint64_t none = 0;
    return one.matcher->PrepareMask(none);
  };
  std::erase_if(queued_, [&](const MaskRequest& one) {
    if (has(requests, one) && !is_cached(one)) return false;
    return queue_.Remove(one.party, one.member, one.matcher);
  });
  for (const MaskRequest& request : requests) {
    if (has(queued_, request) || is_cached(request)) continue;
    queued_.push_back(request);
    queue_.Push(request.party, request.member, request.matcher);
  }
  for (uint64_t taken = 0; taken < steps && queue_.size() > 0;) {
    const auto next = queue_.Pop();
    const uint64_t part = queue_.size() == 0 ? steps - taken : steps / kPieces;
    const uint64_t piece = std::max(next->item->repeated_steps() + kMaskPieceMin, part);
    uint64_t left = piece;
    if (!next->item->PrepareMask(left)) queue_.Push(next->turn.party, next->turn.member, next->item);
    queue_.Charge(next->turn, static_cast<int64_t>(piece - left));
    taken += piece - left;
  }
  std::erase_if(queued_, [](const MaskRequest& one) { return one.matcher->has_mask(); });
  return queued_.empty();
}

}  // namespace quire::runner::constraint
