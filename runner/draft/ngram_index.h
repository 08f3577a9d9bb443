// Where the end of a text stood in it before: what followed there is a guess at what follows now.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "api/base/ids.h"

namespace quire::runner::draft {

using api::TokenId;

// Over one sequence's tokens, prompt and answer alike. Costs some 20 bytes a token. One thread.
class NgramIndex {
 public:
  // Takes in what is new of `tokens`, which begin with those of the last call.
  void Extend(std::span<const TokenId> tokens);
  // The tokens changed before their end.
  void Clear();

  // The longest end of `tokens`, two tokens at least, that stands in them before, the latest of equal ones.
  // Puts the `most` tokens that followed it there into `next`, going round where they run into the end, and
  // returns how long the match is, at most kMatchMax; 0 = there is none. REQUIRES: Extend(tokens) came last.
  int32_t Find(std::span<const TokenId> tokens, int32_t most, std::vector<TokenId>& next) const;

  static constexpr int32_t kMatchMax = 16;

 private:
  struct Slot {
    uint64_t pair = 0;
    int32_t latest = 0;  // where what follows the pair begins; 0 = the slot is free
  };
  size_t PlaceOf(uint64_t pair) const;  // its slot, or the free one for it
  void Grow(size_t positions);

  std::vector<Slot> slots_;        // open addressing; a power of two
  std::vector<int32_t> previous_;  // [position]: where the pair before it stood last, 0 = nowhere
};

}  // namespace quire::runner::draft
