// WordPiece: a word is the longest entry that begins it, then the longest entry that continues it, and so on;
// or the unknown token where that leads nowhere (Devlin et al. 2018).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runner/tokenizer/bpe.h"
#include "runner/tokenizer/subword_model.h"

namespace quire::runner::tokenizer {

struct WordPieceDefinition {
  struct Entry {
    std::string text;  // without the mark of a continuation
    bool continues = false;
    api::TokenId id = 0;
  };
  std::vector<Entry> entries;  // of two alike the first is found
  api::TokenId unknown = kNoToken;
  size_t word_characters_max = 100;  // longer words are unknown
};

class WordPieceModel final : public SubwordModel {
 public:
  explicit WordPieceModel(WordPieceDefinition definition);
  ~WordPieceModel() override;

  // Time: the word's bytes times those of the longest entry, at most word_characters_max characters.
  void Encode(std::string_view piece, std::vector<api::TokenId>& ids) const override;

 private:
  struct Tables;
  std::unique_ptr<const Tables> tables_;
};

// How pieces become words: white space goes, each mark of punctuation is a piece.
struct PreTokenizer;
void SplitLikeBert(PreTokenizer& splits);

}  // namespace quire::runner::tokenizer
