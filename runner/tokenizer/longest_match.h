// Tokens by the longest match: from the left, the longest token that the rest of a text begins with (RWKV's
// "World" vocabulary).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/ids.h"
#include "runner/tokenizer/bpe.h"
#include "runner/tokenizer/subword_model.h"

namespace quire::runner::tokenizer {

// "\\xe4\\n" to the bytes it stands for, as a literal of Python has them; nothing where an escape has no end.
std::optional<std::string> UnescapeBytes(std::string_view text);

struct LongestMatchDefinition {
  struct Entry {
    std::string bytes;  // not empty
    api::TokenId id = 0;
  };
  std::vector<Entry> entries;       // of two alike the last is found
  api::TokenId unknown = kNoToken;  // of a byte that no token begins with; kNoToken: it is left out
};

class LongestMatchModel final : public SubwordModel {
 public:
  explicit LongestMatchModel(const LongestMatchDefinition& definition);
  ~LongestMatchModel() override;

  // Time: the piece's bytes times those of the longest token.
  void Encode(std::string_view piece, std::vector<api::TokenId>& ids) const override;

 private:
  struct Trie;
  std::unique_ptr<const Trie> trie_;
};

}  // namespace quire::runner::tokenizer
