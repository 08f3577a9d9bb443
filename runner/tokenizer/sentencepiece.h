// SentencePiece vocabularies, whichever file they come from: a tokenizer.model, a GGUF or (through its own
// loader) a tokenizer.json. Ids equal those of the SentencePiece library.
//
// Two things are not as there: pieces of type "unused" count as not being in the vocabulary, and of a
// character without its own piece, no longer piece is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/tokenizer/bpe.h"
#include "runner/tokenizer/parts.h"

namespace quire::runner::tokenizer {

// As SentencePiece numbers them, and GGUF after it (tokenizer.ggml.token_type).
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct SentencePieceVocabulary {
  enum class Algorithm : uint8_t {
    kBpeByScore,   // neighbors merge when the result is a piece, the best score first
    kBpeByMerges,  // neighbors merge as `merges` says
    kUnigram,
  };
  struct Entry {
    std::string_view text;
    float score = 0;
    TokenType type = TokenType::kNormal;
    bool lstrip = false, rstrip = false;  // of an AddedToken, for all but normal pieces
  };

  Algorithm algorithm = Algorithm::kBpeByScore;
  std::vector<Entry> entries;  // by id
  std::vector<Merge> merges;
  bool add_dummy_prefix = true;  // a space before the text
  bool remove_extra_whitespaces = false;
  // Where user-defined pieces are looked for. In files of SentencePiece: in the rewritten text, whose spaces
  // are marks. In GGUF files, whose user-defined pieces have spaces for marks: in the text as it is.
  enum class Symbols : uint8_t { kRewrittenText, kText };
  Symbols symbols = Symbols::kRewrittenText;
  std::span<const std::byte> character_map;  // see CharacterMap; empty: none
  std::optional<std::string_view>
      unknown_surface;  // what the unknown token stands for in text; else its own text
};

// Fills the parts except BOS and EOS. kBadModel names the piece ("piece 7: ...") or the part.
api::Result<void> BuildSentencePiece(SentencePieceVocabulary vocabulary, TokenizerParts& parts);

// Whether no entry has a space mark behind another character, so that words can be worked on one by one.
class WordCheck {
 public:
  void Add(std::string_view entry);
  bool words_stand_alone() const { return mark_is_an_entry_ && !crossed_; }

 private:
  bool crossed_ = false;
  bool mark_is_an_entry_ = false;
};

// The text that a vocabulary entry stands for: space marks are spaces.
std::string WithoutSpaceMarks(std::string_view entry);
// The other way round.
std::string WithSpaceMarks(std::string_view text);

}  // namespace quire::runner::tokenizer
