#include "cache/testing/memory_tier.h"

#include <algorithm>

namespace quire::cache {

bool MemoryTier::Has(const Transfer& transfer, const std::vector<Segment>& segments) const {
  return std::ranges::all_of(segments, [&](const Segment& segment) {
    return SegmentBytes(layout_, segment) == 0 || segments_.contains(KeyOf(transfer, segment));
  });
}

bool MemoryTier::Waits(Transfer& transfer) {
  if (never) return true;
  if (transfer.waits == 0) return false;
  --transfer.waits;
  return true;
}

// Past what has no bytes.
void MemoryTier::Skip(Transfer& transfer) const {
  while (transfer.segment < transfer.segments.size() &&
         transfer.offset >= SegmentBytes(layout_, transfer.segments[transfer.segment])) {
    ++transfer.segment;
    transfer.offset = 0;
  }
}

bool MemoryTier::StartFetch(std::string_view isolation, std::span<const TokenId> tokens, Position matched,
                            Position restorable) {
  if (fetch_) return false;
  Transfer transfer{std::string(isolation), {tokens.begin(), tokens.end()}, {}};
  transfer.waits = late;
  const Position step = SegmentTokens(layout_);
  for (auto to = static_cast<Position>(tokens.size()) - 1; to > restorable; --to) {
    auto segments = SegmentsOf(layout_, std::min(matched, to - 1) / step * step, to);
    if (!Has(transfer, segments)) continue;
    transfer.segments = std::move(segments);
    transfer.to = to;
    break;
  }
  Skip(transfer);
  fetch_ = std::move(transfer);
  return true;
}

LowerTier::Fetched MemoryTier::PollFetch() {
  Transfer& fetch = *fetch_;
  if (Waits(fetch)) return {};
  if (fault == Fault::kFails) {
    fetch_.reset();
    return {.kind = Fetched::Kind::kFailed};
  }
  if (!fetch.accepted) {
    Fetched offer{.kind = Fetched::Kind::kOffer, .to = fetch.to};
    if (fault == Fault::kTooFar && fetch.to > 0) offer.to = static_cast<Position>(fetch.tokens.size());
    for (const Segment& segment : fetch.segments) offer.bytes_total += SegmentBytes(layout_, segment);
    if (fetch.to == 0) fetch_.reset();
    return offer;
  }
  if (fetch.segment >= fetch.segments.size() || fault == Fault::kEndsEarly) {
    fetch_.reset();
    return {.kind = Fetched::Kind::kEnd};
  }
  Segment segment = fetch.segments[fetch.segment];
  const auto& stored = segments_.at(KeyOf(fetch, segment));
  // Storing the segment again may have cut it to less than what was fetched of it.
  const size_t begin = std::min(fetch.offset, stored.size()), end = std::min(stored.size(), begin + piece);
  fetch.bytes.assign(stored.begin() + static_cast<ptrdiff_t>(begin),
                     stored.begin() + static_cast<ptrdiff_t>(end));
  if (fault == Fault::kWrongSegment) segment.to += 1;
  if (fault == Fault::kTooManyBytes) fetch.bytes.resize(stored.size() + 1);
  return {.kind = Fetched::Kind::kBytes, .segment = segment, .offset = fetch.offset, .bytes = fetch.bytes};
}

void MemoryTier::ContinueFetch() {
  fetch_->waits = late;
  if (!std::exchange(fetch_->accepted, true)) return;
  fetch_->offset += fetch_->bytes.size();
  Skip(*fetch_);
}

bool MemoryTier::StartStore(std::string_view isolation, std::span<const TokenId> tokens) {
  if (store_) return false;
  Transfer transfer{std::string(isolation), {tokens.begin(), tokens.end()}, {}};
  transfer.waits = late;
  for (const Segment& segment : SegmentsOf(layout_, 0, static_cast<Position>(tokens.size()))) {
    if (!Has(transfer, {segment})) transfer.segments.push_back(segment);
  }
  store_ = std::move(transfer);
  return true;
}

LowerTier::Wanted MemoryTier::PollStore() {
  Transfer& store = *store_;
  if (Waits(store)) return {};
  if (store.segment == store.segments.size()) {
    store_.reset();
    return {.kind = Wanted::Kind::kEnd};
  }
  Segment segment = store.segments[store.segment];
  const size_t size = SegmentBytes(layout_, segment);
  store.bytes.resize(std::min(piece, size - store.offset));
  if (fault == Fault::kWrongSegment) segment.to += 1;
  if (fault == Fault::kTooManyBytes) store.bytes.resize(size + 1);
  return {.kind = Wanted::Kind::kWanted, .segment = segment, .offset = store.offset, .out = store.bytes};
}

void MemoryTier::ContinueStore() {
  Transfer& store = *store_;
  const Segment& segment = store.segments[store.segment];
  auto& stored = segments_[KeyOf(store, segment)];
  stored.resize(store.offset);
  stored.insert(stored.end(), store.bytes.begin(), store.bytes.end());
  bytes_requested += store.bytes.size();
  store.offset += store.bytes.size();
  store.waits = late;
  if (store.offset < SegmentBytes(layout_, segment)) return;
  store.offset = 0;
  ++store.segment;
}

}  // namespace quire::cache
