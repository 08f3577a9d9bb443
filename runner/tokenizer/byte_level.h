// The byte alphabet of byte-level BPE: vocabularies write each byte as one printable character (a space is
// U+0120).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire::runner::tokenizer {

// The character (UTF-8) that stands for a byte.
std::string ByteLevelCharacter(uint8_t byte);

// The bytes that a vocabulary entry stands for; nothing when some character is not of the alphabet.
std::optional<std::string> FromByteLevel(std::string_view entry);

}  // namespace quire::runner::tokenizer
