// The normalization of BERT's tokenizers: what WordPiece vocabularies expect of a text.
#pragma once

#include <string>
#include <string_view>

namespace quire::runner::tokenizer {

struct BertText {
  bool clean = true;          // control characters go, white space becomes spaces
  bool isolate_han = true;    // spaces around ideographs
  bool strip_accents = true;  // decomposed, without nonspacing marks
  bool lowercase = true;

  // At most kBertTextGrowthMax times as long as `text`. REQUIRES: valid UTF-8.
  std::string Apply(std::string_view text) const;
};

inline constexpr size_t kBertTextGrowthMax = 18;

}  // namespace quire::runner::tokenizer
