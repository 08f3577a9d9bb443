// Prompt lookup: finds an earlier occurrence of the last tokens; what followed it there is the draft.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "api/base/ids.h"

namespace quire::runner::draft {

using api::TokenId;

// Over one sequence's tokens, prompt and answer alike. About 20 bytes per token. One thread.
class NgramIndex {
 public:
  // Adds the new ones of `tokens`, which begin with those of the last call.
  void Extend(std::span<const TokenId> tokens);
  // The tokens changed before their end.
  void Clear();

  // Finds the longest suffix of `tokens`, of two tokens at least, that occurs earlier, and the latest of
  // equal ones. Writes the `limit` tokens that followed it there into `next`, wrapping around at the end.
  // Returns the length of the match, at most kMatchMax; 0 = no match. REQUIRES: Extend(tokens) came last.
  int32_t Find(std::span<const TokenId> tokens, int32_t limit, std::vector<TokenId>& next) const;

  static constexpr int32_t kMatchMax = 16;

 private:
  struct Slot {
    uint64_t pair = 0;
    int32_t latest = 0;  // where what follows the pair begins; 0 = the slot is free
  };
  size_t SlotOf(uint64_t pair) const;  // its slot, or the free one for it
  void Grow(size_t positions);

  std::vector<Slot> slots_;        // open addressing; a power of two
  std::vector<int32_t> previous_;  // [position]: where the pair before it stood last, 0 = nowhere
};

}  // namespace quire::runner::draft
