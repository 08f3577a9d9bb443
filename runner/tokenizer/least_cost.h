// Tokens of the least cost: of all ways to cut a text into pieces of a vocabulary, the one whose costs add up
// to the least (PLaMo 2). Of equal ones the longer piece is taken, from the right to the left.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/ids.h"
#include "runner/tokenizer/subword_model.h"

namespace quire::runner::tokenizer {

struct LeastCostDefinition {
  struct Entry {
    std::string text;  // not empty
    float score = 0;   // costs -score, in ten thousandths; not finite or below -2000: it is not used
    api::TokenId id = 0;
  };
  std::vector<Entry> entries;  // of two alike the last is found
  // The bytes of a character that no piece covers, which costs 1000.
  std::array<api::TokenId, 256> bytes = {};
};

class LeastCostModel final : public SubwordModel {
 public:
  explicit LeastCostModel(const LeastCostDefinition& definition);
  ~LeastCostModel() override;

  // A byte order mark at the beginning is left out. Time: the piece's bytes times those of the longest token.
  void Encode(std::string_view piece, std::vector<api::TokenId>& ids) const override;

 private:
  struct Trie;
  std::unique_ptr<const Trie> trie_;
};

}  // namespace quire::runner::tokenizer
