// The "precompiled charsmap" of SentencePiece: which character sequences a text's normalization replaces, as
// a double-array trie (Darts) over UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"

namespace quire::runner::tokenizer {

// The maximum replacement of one character sequence; Unicode's longest has 18 characters. Bounds the growth
// of a text.
inline constexpr size_t kReplacementBytesMax = 128;

// Immutable; any thread.
class CharacterMap {
 public:
  // The blob: u32 bytes of the trie, the trie's u32 units, then the replacements, each ended by a zero byte.
  // kBadModel gives the reason.
  static api::Result<CharacterMap> Parse(std::span<const std::byte> blob);

  // The text with the longest sequence known at each place replaced. REQUIRES: valid UTF-8.
  std::string Apply(std::string_view text) const;

 private:
  struct Found {
    size_t length = 0;  // 0: nothing
    std::string_view replacement;
  };
  Found Longest(std::string_view text) const;

  std::vector<uint32_t> units_;
  std::string replacements_;  // empty or ends with a zero byte
};

}  // namespace quire::runner::tokenizer
