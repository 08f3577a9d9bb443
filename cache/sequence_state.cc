#include "cache/sequence_state.h"

#include <algorithm>
#include <utility>

#include "cache/check.h"

namespace quire::cache {

std::byte* SequenceState::Record::Layer(const Layout& layout, size_t layer) const {
  size_t at = 0;
  for (size_t l = 0; l < layer; ++l) at += static_cast<size_t>(layout.recurrent[l].record_bytes);
  return bytes.get() + at * static_cast<size_t>(tokens);
}

std::unique_ptr<HybridState> SequenceState::Committed() const {
  auto state = std::make_unique<HybridState>(held);
  if (draft) state->RestAt(draft->base, held.draft_slot);
  return state;
}

void SequenceState::ReserveCaptures(size_t count) {
  if (count == 0) return;
  captured.reserve(captured.size() + count);
  spare_states.reserve(count);
  while (spare_states.size() < count) spare_states.push_back(std::make_unique<HybridState>(&held.pools()));
}

size_t SequenceState::CapturesUpTo(Position end) const {
  return static_cast<size_t>(std::ranges::upper_bound(scheduled, end) - scheduled.begin());
}

void SequenceState::Capture(Position at, SlotRef state) {
  if (at == capture_from) {
    captured.push_back(Snapshot(nullptr, at));
    return;
  }
  std::unique_ptr<HybridState> copy = std::move(spare_states.back());
  spare_states.pop_back();
  *copy = held;
  copy->RestAt(at, std::move(state));
  captured.push_back(Snapshot(std::move(copy), std::exchange(capture_from, at)));
}

void SequenceState::CaptureOne(Position at, Position end) {
  if (at == capture_from || held.Reaches(at)) {
    Capture(at, at == end ? held.slot : SlotRef());
  } else {
    ++held.pools().captures_skipped;
  }
}

void SequenceState::CaptureReached(Position end) {
  const auto reached = std::ranges::upper_bound(scheduled, end);
  for (auto at = scheduled.begin(); at != reached; ++at) CaptureOne(*at, end);
  scheduled.erase(scheduled.begin(), reached);
}

void SequenceState::DiscardCaptures(Position position) {
  const auto beyond =
      std::ranges::find_if(captured, [&](const Snapshot& snapshot) { return snapshot.to() > position; });
  // The next one goes on where what is left ends.
  if (beyond != captured.end()) capture_from = beyond->from();
  captured.erase(beyond, captured.end());
  capture_from = std::min(capture_from, position);
}

void ViewList::Update(const HybridState& held, size_t group, Position oldest, Position begin, Position end) {
  const Pools& pools = held.pools();
  const int64_t page_tokens = pools.layout.page_tokens;
  const int64_t first = pools.PageOf(oldest);
  const int64_t last = pools.PageEnd(end);
  int64_t keep_end = pools.PageOf(std::min(valid_, begin));  // entries below this page stay as they are
  const int64_t have_end = first_index_ + static_cast<int64_t>(views_.size() - start_);
  if (first < first_index_ || first > have_end || keep_end < first) {
    views_.clear();
    start_ = 0;
    keep_end = first;
  } else {
    start_ += static_cast<size_t>(first - first_index_);
    keep_end = std::min(keep_end, have_end);
    views_.resize(start_ + static_cast<size_t>(keep_end - first));
    if (start_ > 16 && start_ > views_.size() / 2) {
      views_.erase(views_.begin(), views_.begin() + static_cast<std::ptrdiff_t>(start_));
      start_ = 0;
    }
  }
  first_index_ = first;
  valid_ = end;
  if (last == first) return;
  const auto add = [&](BlockId page) {
    const Position page_begin = keep_end++ * page_tokens;
    views_.push_back(PageView{pools.pages[group]->data(page), page_begin,
                              static_cast<int32_t>(std::min(page_begin + page_tokens, end) - page_begin)});
  };
  const PageTable& table = held.groups[group].table;
  if (keep_end + 1 == last) {  // while decoding: without a list
    add(table.Get(keep_end));
  } else {
    const std::vector<BlockId> pages = table.Pages(keep_end, last);
    QUIRE_CACHE_CHECK(static_cast<int64_t>(pages.size()) == last - keep_end);
    for (const BlockId page : pages) add(page);
  }
  // The first page shows only what is still visible; it may have shown more, or less, in an earlier step.
  PageView& front = views_[start_];
  front.first = std::max(first * page_tokens, oldest);
  front.tokens = static_cast<int32_t>(std::min((first + 1) * page_tokens, end) - front.first);
}

}  // namespace quire::cache
