// Token ids back to text, one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/base/utf8.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::tokenizer {

// Copyable; one per stream, one thread.
class Detokenizer {
 public:
  enum class Special : uint8_t { kWrite, kSkip };
  // Where the ids begin: a text, without the space that encoding puts before it, or the middle of one.
  enum class StartAt : uint8_t { kText, kMiddle };

  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, Special special = Special::kWrite,
                       StartAt start = StartAt::kText);

  // The text that is certain now: whole characters, U+FFFD for each maximal invalid subpart. The beginning of
  // a character is held back.
  std::string Append(TokenId id);
  // The end of the stream: U+FFFD for a character that was begun, or nothing.
  std::string Flush();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  Special special_;
  bool at_start_ = false;  // a space now is one that encoding put there
  api::Utf8Stream stream_;
};

}  // namespace quire::runner::tokenizer
