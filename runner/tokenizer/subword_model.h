// Turns one piece of text into token ids. Byte-level BPE is one kind; SentencePiece's BPE and Unigram
// are others.
#pragma once

#include <string_view>
#include <vector>

#include "api/base/ids.h"

namespace quire::runner::tokenizer {

// Immutable; any thread.
class SubwordModel {
 public:
  virtual ~SubwordModel() = default;

  // Appends the ids of `piece`. Time: n log n in the piece's bytes. REQUIRES: piece.size() < 2^31.
  virtual void Encode(std::string_view piece, std::vector<api::TokenId>& ids) const = 0;
};

}  // namespace quire::runner::tokenizer
