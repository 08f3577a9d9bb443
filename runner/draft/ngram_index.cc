#include "runner/draft/ngram_index.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace quire::runner::draft {
namespace {

constexpr size_t kPair = 2;
constexpr int32_t kCandidatesMax = 32;  // earlier places of the last pair
constexpr size_t kPositionsMin = 256;

uint64_t PairBefore(std::span<const TokenId> tokens, size_t position) {
  return static_cast<uint64_t>(static_cast<uint32_t>(tokens[position - 2])) << 32 |
         static_cast<uint32_t>(tokens[position - 1]);
}

// Finalizer of SplitMix64.
uint64_t Mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return x ^ x >> 31;
}

int32_t MatchLength(std::span<const TokenId> tokens, size_t position) {
  const size_t limit = std::min<size_t>(position, NgramIndex::kMatchMax);
  size_t length = 0;
  while (length < limit && tokens[position - 1 - length] == tokens[tokens.size() - 1 - length]) ++length;
  return static_cast<int32_t>(length);
}

}  // namespace

size_t NgramIndex::SlotOf(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  size_t at = Mix(pair) & mask;
  while (slots_[at].latest != 0 && slots_[at].pair != pair) at = (at + 1) & mask;
  return at;
}

// Never more than half full, as there are no more pairs than positions.
void NgramIndex::Grow(size_t positions) {
  previous_.reserve(positions);
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(2 * positions));
  for (const Slot& slot : old) {
    if (slot.latest != 0) slots_[SlotOf(slot.pair)] = slot;
  }
}

void NgramIndex::Extend(std::span<const TokenId> tokens) {
  if (2 * tokens.size() > slots_.size()) Grow(std::max(kPositionsMin, std::bit_ceil(tokens.size() + 1)));
  // The continuation of the last pair is not known yet.
  for (size_t at = std::max(previous_.size(), kPair); at < tokens.size(); ++at) {
    previous_.resize(at + 1);
    const uint64_t pair = PairBefore(tokens, at);
    Slot& slot = slots_[SlotOf(pair)];
    previous_[at] = slot.latest;
    slot = {pair, static_cast<int32_t>(at)};
  }
}

void NgramIndex::Clear() {
  slots_.clear();
  previous_.clear();
}

int32_t NgramIndex::Find(std::span<const TokenId> tokens, int32_t limit, std::vector<TokenId>& next) const {
  next.clear();
  if (tokens.size() <= kPair || limit <= 0) return 0;
  int32_t best = 0, longest = 0;
  int32_t at = slots_[SlotOf(PairBefore(tokens, tokens.size()))].latest;
  for (int32_t seen = 0; at != 0 && seen < kCandidatesMax && longest < kMatchMax; ++seen) {
    const int32_t length = MatchLength(tokens, static_cast<size_t>(at));
    if (length > longest) {
      longest = length;
      best = at;
    }
    at = previous_[static_cast<size_t>(at)];
  }
  if (best == 0) return 0;
  const auto from = static_cast<size_t>(best);
  for (size_t i = 0; i < static_cast<size_t>(limit); ++i) {
    next.push_back(from + i < tokens.size() ? tokens[from + i] : next[from + i - tokens.size()]);
  }
  return longest;
}

}  // namespace quire::runner::draft
