// Byte fallback: vocabularies of characters that also hold a token for each byte ("<0x0A>"), for characters
// that they lack.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "api/base/ids.h"
#include "runner/tokenizer/bpe.h"

namespace quire::runner::tokenizer {

// The byte that a vocabulary entry stands for, when it is "<0x" + two hexadecimal digits + ">".
std::optional<uint8_t> ByteOfEntry(std::string_view entry);

// Adds the tokens of a character's bytes; kNoToken, once, when some byte has none.
template <class Add>
void AddBytes(const std::array<api::TokenId, 256>& byte_tokens, std::string_view character, Add add) {
  for (const char c : character) {
    if (byte_tokens[static_cast<uint8_t>(c)] == kNoToken) return add(kNoToken);
  }
  for (const char c : character) add(byte_tokens[static_cast<uint8_t>(c)]);
}

}  // namespace quire::runner::tokenizer
