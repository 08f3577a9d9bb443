// Unigram language model: of all ways to write a piece with the vocabulary, the one whose tokens' scores (log
// probabilities) add up to most (Kudo, "Subword Regularization", 2018).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runner/tokenizer/bpe.h"
#include "runner/tokenizer/subword_model.h"

namespace quire::runner::tokenizer {

struct UnigramDefinition {
  struct Entry {
    std::string text;  // not empty, at most kUnigramTextBytesMax
    api::TokenId id = 0;
    float score = 0;
  };
  std::vector<Entry> entries;                   // of two with one text the first is found
  std::array<api::TokenId, 256> byte_tokens{};  // kNoToken: none
  // For characters that no entry covers and that have no byte tokens; neighbors are one token.
  api::TokenId unknown = kNoToken;
};

inline constexpr size_t kUnigramTextBytesMax = 512;

class UnigramModel final : public SubwordModel {
 public:
  explicit UnigramModel(UnigramDefinition definition);
  ~UnigramModel() override;

  // Time: the piece's bytes times the bytes of the longest entry that begins as the text does there.
  void Encode(std::string_view piece, std::vector<api::TokenId>& ids) const override;

 private:
  struct Tables;
  std::unique_ptr<const Tables> tables_;
};

}  // namespace quire::runner::tokenizer
