#include "runner/sampler/breaker_scan.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace quire::runner::sampler {

using api::TokenId;

BreakerScan::BreakerScan(std::vector<std::string> breakers, TokenText text, size_t tail_max)
    : strings_(std::move(breakers)), text_(std::move(text)), tail_max_(tail_max) {}

const ByteAutomaton& BreakerScan::Breakers() {
  if (!breakers_) breakers_ = std::make_shared<const ByteAutomaton>(std::exchange(strings_, {}));
  return *breakers_;
}

bool BreakerScan::Contains(TokenId token) {
  const auto index = static_cast<size_t>(token);
  if (index >= known_.size()) {
    known_.resize(index + 1);
    contains_.resize(index + 1);
  }
  if (known_[index]) return contains_[index];
  known_[index] = true;
  const ByteAutomaton& breakers = Breakers();
  int32_t node = ByteAutomaton::kRoot;
  for (const char c : text_(token)) {
    node = breakers.Next(node, static_cast<uint8_t>(c));
    if (breakers.ShortestLength(node) > 0) {
      contains_[index] = true;
      break;
    }
  }
  return contains_[index];
}

bool BreakerScan::EndsWith(std::span<const TokenId> tokens) const {
  if (tokens.size() > scanned_.size()) return false;
  const auto from = scanned_.end() - static_cast<std::ptrdiff_t>(tokens.size());
  return std::equal(tokens.begin(), tokens.end(), from,
                    [](TokenId token, const ScannedToken& scanned) { return scanned.token == token; });
}

void BreakerScan::Append(TokenId token) {
  ScannedToken scanned{.token = token, .begin = bytes_, .breaker_begin = std::nullopt};
  const ByteAutomaton& breakers = Breakers();
  for (const char c : text_(token)) {
    node_ = breakers.Next(node_, static_cast<uint8_t>(c));
    ++bytes_;
    const size_t length = breakers.ShortestLength(node_);
    if (length > 0) scanned.breaker_begin = std::max(scanned.breaker_begin.value_or(0), bytes_ - length);
  }
  scanned_.push_back(scanned);
  if (scanned_.size() > tail_max_) scanned_.pop_front();
}

size_t BreakerScan::CountUnbroken(std::span<const TokenId> history, size_t tail) {
  const auto newest = history.last(std::min({history.size(), tail, tail_max_}));
  // What a breaker is depends on the tail alone, so what was read before it does not matter.
  size_t added = history.size() - std::exchange(history_size_, history.size());
  if (added >= newest.size() || !EndsWith(newest.first(newest.size() - added))) {
    scanned_.clear();
    node_ = ByteAutomaton::kRoot;
    added = newest.size();
  }
  for (const TokenId token : newest.last(added)) Append(token);
  if (newest.empty()) return 0;
  const uint64_t begin = scanned_[scanned_.size() - newest.size()].begin;
  size_t unbroken = 0;
  for (const ScannedToken& scanned : scanned_ | std::views::reverse) {
    if (unbroken == newest.size() || (scanned.breaker_begin && *scanned.breaker_begin >= begin)) break;
    ++unbroken;
  }
  return unbroken;
}

}  // namespace quire::runner::sampler
