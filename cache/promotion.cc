#include "cache/promotion.h"

#include <algorithm>
#include <map>
#include <new>
#include <utility>

namespace quire::cache {

bool Promotion::Begin(std::string_view isolation, std::span<const TokenId> tokens, std::string_view owner) {
  if (state_ != State::kIdle) return false;
  const Probed known = store_.Probe(isolation, tokens);
  isolation_ = isolation;
  owner_ = owner;
  tokens_.assign(tokens.begin(), tokens.end());
  if (!tier_.StartFetch(isolation, tokens, known.matched, known.restorable)) return false;
  matched_ = known.matched;
  restorable_ = known.restorable;
  state_ = State::kSearching;
  return true;
}

Promotion::State Promotion::Poll(size_t bytes_max) {
  const uint64_t enough = counters_.bytes + bytes_max;
  while (state_ == State::kSearching || state_ == State::kFetching) {
    if (counters_.bytes >= enough) break;
    const LowerTier::Fetched fetched = tier_.PollFetch();
    if (fetched.kind == LowerTier::Fetched::Kind::kPending) break;
    try {
      Receive(fetched);
    } catch (const std::bad_alloc&) {
      ++counters_.failed;
      Cancel();
    }
  }
  return state_;
}

void Promotion::Receive(const LowerTier::Fetched& fetched) {
  using Kind = LowerTier::Fetched::Kind;
  if (fetched.kind == Kind::kFailed) {
    ++counters_.failed;
    import_.reset();
    state_ = State::kIdle;
  } else if (fetched.kind == Kind::kOffer && state_ == State::kSearching) {
    if (fetched.to == 0) {
      state_ = State::kIdle;
    } else if (fetched.to <= restorable_ || fetched.to >= static_cast<Position>(tokens_.size())) {
      Refuse();
    } else {
      offer_to_ = fetched.to;
      offer_bytes_ = fetched.bytes_total;
      state_ = State::kOffered;
    }
  } else if (fetched.kind == Kind::kBytes && import_) {
    if (!import_->Write(fetched.segment, fetched.offset, fetched.bytes)) return Refuse();
    counters_.bytes += fetched.bytes.size();
    tier_.ContinueFetch();
  } else if (fetched.kind == Kind::kEnd && import_ && import_->complete()) {
    Finish();
  } else {
    Refuse();
  }
}

Promotion::State Promotion::Accept() try {
  if (state_ != State::kOffered) return state_;
  const Position step = SegmentTokens(cache_.layout());
  const Position from = std::min(matched_, offer_to_ - 1) / step * step;
  std::vector<Snapshot::Part> parts;
  auto imported = store_.ImportBehind(isolation_, std::span(tokens_), from, offer_to_,
                                      [&](const Snapshot::Part& part) { parts.push_back(part); });
  if (!imported) {
    Cancel();
    return state_;
  }
  import_.emplace(cache_.layout(), *std::move(imported), std::move(parts));
  state_ = State::kFetching;
  tier_.ContinueFetch();
  return state_;
} catch (const std::bad_alloc&) {
  ++counters_.failed;
  Cancel();
  return state_;
}

void Promotion::Finish() {
  state_ = State::kIdle;
  Snapshot snapshot = import_->Finish();
  import_.reset();
  if (store_.Promote(isolation_, std::span(tokens_), std::move(snapshot), owner_)) ++counters_.fetched;
}

void Promotion::Refuse() {
  ++counters_.refused;
  Cancel();
}

void Promotion::Cancel() {
  if (state_ != State::kIdle) tier_.CancelFetch();
  import_.reset();
  state_ = State::kIdle;
}

Demotion::~Demotion() {
  if (storing_) tier_.CancelStore();
}

void Demotion::Add(std::string_view isolation, std::span<const TokenId> tokens, std::string_view owner) try {
  if (queue_.size() >= kQueueMax) MakeRoom();
  queue_.push_back({std::string(isolation), {tokens.begin(), tokens.end()}, std::string(owner)});
} catch (const std::bad_alloc&) {
  ++counters_.dropped;
}

// Gives up the oldest of the owner that has most, but not what is being stored.
void Demotion::MakeRoom() {
  std::map<std::string_view, size_t> counts;
  for (const Prefix& prefix : queue_) ++counts[prefix.owner];
  const auto first = queue_.begin() + (storing_ ? 1 : 0);
  const auto most = std::max_element(first, queue_.end(), [&counts](const Prefix& a, const Prefix& b) {
    return counts.at(a.owner) < counts.at(b.owner);
  });
  queue_.erase(most);
  ++counters_.dropped;
}

void Demotion::Drop() {
  if (std::exchange(storing_, false)) tier_.CancelStore();
  queue_.pop_front();
  ++counters_.dropped;
}

bool Demotion::Poll() {
  if (queue_.empty()) return false;
  if (!storing_) {
    const Prefix& next = queue_.front();
    if (store_.Find(next.isolation, next.tokens) == nullptr) {
      Drop();
      return !queue_.empty();
    }
    storing_ = tier_.StartStore(next.isolation, next.tokens);
    return true;
  }
  const LowerTier::Wanted wanted = tier_.PollStore();
  if (wanted.kind == LowerTier::Wanted::Kind::kWanted) {
    if (!Fill(wanted)) {
      Drop();
    } else {
      counters_.bytes += wanted.out.size();
      tier_.ContinueStore();
    }
  } else if (wanted.kind == LowerTier::Wanted::Kind::kEnd) {
    storing_ = false;
    ++counters_.stored;
    queue_.pop_front();
  }
  return !queue_.empty();
}

// The tier is not trusted with what it may ask for.
bool Demotion::Fill(const LowerTier::Wanted& wanted) const try {
  const Layout& layout = cache_.layout();
  const auto to = static_cast<Position>(queue_.front().tokens.size());
  const auto segments = SegmentsOf(layout, 0, to);
  if (std::ranges::find(segments, wanted.segment) == segments.end()) return false;
  const size_t size = SegmentBytes(layout, wanted.segment);
  if (wanted.offset > size || wanted.out.size() > size - wanted.offset) return false;
  const Snapshot* snapshot = store_.Find(queue_.front().isolation, queue_.front().tokens);
  return snapshot != nullptr && ReadSegment(layout, *snapshot, wanted.segment, wanted.offset, wanted.out);
} catch (const std::bad_alloc&) {
  return false;
}

}  // namespace quire::cache
