#include "runner/engine/steps/token_text.h"

#include <string_view>

#include "api/base/utf8.h"

namespace quire::runner::engine {

std::string TextOf(const tokenizer::Tokenizer& tokenizer, std::span<const tokenizer::TokenId> tokens,
                   Excerpt excerpt, size_t bytes_max) {
  size_t count = 0;
  size_t size = 0;
  for (; count < tokens.size(); ++count) {
    const auto token = excerpt == Excerpt::kBegin ? tokens[count] : tokens[tokens.size() - 1 - count];
    const size_t bytes = tokenizer.TokenBytes(token).size();
    if (size + bytes > bytes_max) break;
    size += bytes;
  }
  std::string text;
  for (const auto token : excerpt == Excerpt::kBegin ? tokens.first(count) : tokens.last(count)) {
    text += tokenizer.TokenBytes(token);
  }
  // A replacement character has more bytes than what it stands for.
  text = api::ReplaceInvalidUtf8(text);
  while (text.size() > bytes_max) text.erase(text.size() - api::CodePointBefore(text, text.size()).bytes);
  return text;
}

}  // namespace quire::runner::engine
