// The special tokens around a text, and around the two texts of a pair.
#pragma once

#include <cstdint>
#include <vector>

#include "api/base/ids.h"

namespace quire::runner::tokenizer {

// A pair as a model expects it: `items` in order, each one of the texts or a token.
struct PairFrame {
  enum class Kind : uint8_t { kFirst, kSecond, kToken };
  struct Item {
    Kind kind = Kind::kToken;
    api::TokenId token = 0;  // of a kToken
    int32_t type = 0;        // token type of what stands here: 0 or 1
  };
  std::vector<Item> items;  // empty: the tokenizer knows no pairs

  int32_t tokens() const {  // special ones
    int32_t count = 0;
    for (const Item& item : items) count += item.kind == Kind::kToken ? 1 : 0;
    return count;
  }
};

}  // namespace quire::runner::tokenizer
