// Tokens that are found verbatim in the text, before it is normalized and split: the special ones
// ("<|im_end|>") and plain additions to the vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/ids.h"

namespace quire::runner::tokenizer {

struct AddedToken {
  api::TokenId id = 0;
  std::string content;       // not empty
  bool special = false;      // found in trusted text only
  bool normalized = false;   // looked for in the normalized text
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool single_word = false;  // only where no word character touches it
};

inline constexpr size_t kAddedTokenBytesMax = 1024;

// A text and which of its bytes are trusted: runs end to end, the last one ends where the text does.
struct TrustedText {
  struct Run {
    size_t end = 0;
    bool trusted = false;
  };
  std::string_view text;
  std::vector<Run> runs;

  void AddRun(size_t end, bool trusted);           // from the end of the last run; an empty run is nothing
  bool IsTrusted(size_t begin, size_t end) const;  // REQUIRES: begin < end
  TrustedText Slice(size_t begin, size_t end) const;
};

// A piece of text: the added token it is, or plain text.
struct Stretch {
  size_t begin = 0;
  size_t end = 0;
  std::optional<api::TokenId> token;
};

// Finds added tokens. Immutable after the last Add; any thread.
class AddedTokenFinder {
 public:
  AddedTokenFinder();
  ~AddedTokenFinder();
  AddedTokenFinder(AddedTokenFinder&&) noexcept;
  AddedTokenFinder& operator=(AddedTokenFinder&&) noexcept;

  // The first of two tokens with one content stays. REQUIRES: 0 < content size <= kAddedTokenBytesMax.
  void Add(AddedToken token);
  bool empty() const;

  // Cuts the text at the tokens in it, leftmost first and of those the longest. A special token that does not
  // lie in trusted bytes entirely counts as not there. In order; stretches without text are left out.
  // REQUIRES: valid UTF-8.
  std::vector<Stretch> Find(const TrustedText& text) const;

 private:
  struct Trie;
  std::unique_ptr<Trie> trie_;
};

}  // namespace quire::runner::tokenizer
