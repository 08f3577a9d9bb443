// Token ids and the bytes they stand for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/ids.h"

namespace quire::runner::tokenizer {

// Immutable once built; any thread.
class Vocabulary {
 public:
  // Sets what an id stands for; ids between that nobody sets stand for nothing. REQUIRES: id >= 0.
  void Set(api::TokenId id, std::string_view bytes, bool special);

  int32_t size() const { return static_cast<int32_t>(entries_.size()); }  // highest id + 1
  // Empty for ids outside the vocabulary.
  std::string_view Bytes(api::TokenId id) const;
  bool IsSpecial(api::TokenId id) const;

 private:
  struct Entry {
    size_t offset = 0;
    uint32_t length = 0;
    bool special = false;
  };
  bool Contains(api::TokenId id) const { return id >= 0 && id < size(); }

  std::string pool_;
  std::vector<Entry> entries_;  // [ids]
};

}  // namespace quire::runner::tokenizer
