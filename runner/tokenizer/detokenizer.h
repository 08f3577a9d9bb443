// Token ids back to text, one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runner/tokenizer/tokenizer.h"
#include "runner/tokenizer/utf8.h"

namespace quire::runner::tokenizer {

// Copyable; one per stream, one thread.
class Detokenizer {
 public:
  enum class Special : uint8_t { kWrite, kSkip };

  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, Special special = Special::kWrite);

  // The text that is certain now: whole characters, U+FFFD for each maximal invalid subpart. The beginning of
  // a character is held back.
  std::string Append(TokenId id);
  // The end of the stream: U+FFFD for a character that was begun, or nothing.
  std::string Flush();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  Special special_;
  Utf8Stream stream_;
};

}  // namespace quire::runner::tokenizer
