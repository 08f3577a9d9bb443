#include "runner/constraint/mask_turns.h"

#include <algorithm>
#include <tuple>

namespace quire::runner::constraint {

bool MaskTurns::Prepare(std::span<const MaskRequest> requests, uint64_t steps) {
  FindWaiting(requests);
  while (DivideRound(steps)) steps = MakePieces(steps);
  HelpLongestWaiting();
  waits_.clear();
  for (const Waiting& one : waiting_) {
    waits_.emplace_back(one.request->matcher, one.served ? 0 : one.waited + 1);
  }
  return waiting_.empty();
}

void MaskTurns::FindWaiting(std::span<const MaskRequest> requests) {
  waiting_.clear();
  for (const MaskRequest& request : requests) {
    uint64_t none = 0;  // where all is cached
    if (request.matcher->PrepareMask(none)) continue;
    const auto before =
        std::ranges::find(waits_, request.matcher, [](const auto& wait) { return wait.first; });
    waiting_.push_back({.request = &request, .waited = before == waits_.end() ? 0 : before->second});
  }
  const auto order = [](const Waiting& a, const Waiting& b) {
    return std::tie(*a.request->party, b.waited, a.request) <
           std::tie(*b.request->party, a.waited, b.request);
  };
  std::ranges::sort(waiting_, order);
}

std::span<MaskTurns::Waiting> MaskTurns::PartyAt(size_t begin) {
  size_t end = begin;
  while (end < waiting_.size() && *waiting_[end].request->party == *waiting_[begin].request->party) ++end;
  return std::span(waiting_).subspan(begin, end - begin);
}

// In equal parts for members; false: there are some for whom that is too little.
bool MaskTurns::DivideAmong(std::span<Waiting> all, uint64_t steps) {
  const auto member = [](const Waiting& one) -> const std::string& { return *one.request->member; };
  uint64_t members = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    members +=
        std::ranges::find(all.first(i), member(all[i]), member) == all.begin() + static_cast<ptrdiff_t>(i);
  }
  for (Waiting& one : all) {
    one.share = steps / members / static_cast<uint64_t>(std::ranges::count(all, member(one), member));
    if (one.share < PieceMin(one)) return false;
  }
  return true;
}

bool MaskTurns::DivideRound(uint64_t steps) {
  uint64_t parties = 0;
  for (size_t begin = 0; begin < waiting_.size(); begin += PartyAt(begin).size()) ++parties;
  bool any = false;
  for (size_t begin = 0; begin < waiting_.size();) {
    const std::span<Waiting> party = PartyAt(begin);
    size_t served = party.size();
    while (served > 0 && !DivideAmong(party.first(served), steps / parties)) --served;
    for (Waiting& one : party.subspan(served)) one.share = 0;
    any |= served > 0;
    begin += party.size();
  }
  return any;
}

uint64_t MaskTurns::MakePieces(uint64_t steps) {
  for (Waiting& one : waiting_) {
    if (one.share == 0) continue;
    uint64_t left = one.share;
    one.request->matcher->PrepareMask(left);
    one.served = true;
    steps -= one.share - left;
  }
  RemoveFinished();
  return steps;
}

void MaskTurns::RemoveFinished() {
  std::erase_if(waiting_, [](const Waiting& one) { return one.request->matcher->has_mask(); });
}

void MaskTurns::HelpLongestWaiting() {
  Waiting* longest = nullptr;
  double longest_wait = 0;
  for (size_t begin = 0; begin < waiting_.size();) {
    const std::span<Waiting> party = PartyAt(begin);
    begin += party.size();
    const auto first = std::ranges::find(party, false, &Waiting::served);
    if (first == party.end() || first->waited < kPatience) continue;
    // A party of many always has one that waits long.
    const auto count = static_cast<double>(std::ranges::count(party, false, &Waiting::served));
    const double wait = static_cast<double>(first->waited) / count;
    if (wait <= longest_wait) continue;
    longest = &*first;
    longest_wait = wait;
  }
  if (longest == nullptr) return;
  uint64_t piece = PieceMin(*longest);
  longest->request->matcher->PrepareMask(piece);
  longest->served = true;
  RemoveFinished();
}

}  // namespace quire::runner::constraint
