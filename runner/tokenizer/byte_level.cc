#include "runner/tokenizer/byte_level.h"

#include <array>
#include <cstddef>

#include "api/base/utf8.h"

namespace quire::runner::tokenizer {
namespace {

// Bytes that print stand for themselves; the others, in order, for U+0100 and up.
constexpr bool StandsForItself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr size_t kAlphabetEnd = 0x100 + 68;
constexpr int16_t kNotInAlphabet = -1;

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, kAlphabetEnd> byte{};
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(kNotInAlphabet);
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t character = StandsForItself(byte) ? static_cast<char32_t>(byte) : next++;
    alphabet.character[byte] = character;
    alphabet.byte[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::string ByteLevelCharacter(uint8_t byte) {
  std::string text;
  api::AppendUtf8(text, kAlphabet.character[byte]);
  return text;
}

std::optional<std::string> FromByteLevel(std::string_view entry) {
  std::string bytes;
  bytes.reserve(entry.size());
  while (!entry.empty()) {
    const api::CodePoint next = api::CodePointAt(entry);
    if (!next.whole() || next.value >= kAlphabetEnd || kAlphabet.byte[next.value] == kNotInAlphabet)
      return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte[next.value]));
    entry.remove_prefix(next.bytes);
  }
  return bytes;
}

}  // namespace quire::runner::tokenizer
