// UTF-8 one character at a time, with the maximal-subpart rule for what is not UTF-8 (Unicode 15,
// section 3.9): each longest run of bytes that could begin a character, or else one byte, stands for one
// U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire::runner::tokenizer {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

struct Utf8Step {
  enum class Kind : uint8_t {
    kCharacter,   // `length` bytes are one character
    kInvalid,     // `length` bytes are one maximal invalid subpart
    kIncomplete,  // all the text that is left, the beginning of a character
  };
  Kind kind = Kind::kInvalid;
  uint8_t length = 0;
};

// REQUIRES: text is not empty.
Utf8Step NextUtf8(std::string_view text);

bool IsValidUtf8(std::string_view text);

// The text with U+FFFD for each maximal invalid subpart.
std::string ReplaceInvalidUtf8(std::string_view text);

// The code point of the character that begins at `position`. REQUIRES: valid UTF-8, position < text.size().
char32_t CodePointAt(std::string_view text, size_t position);

// Where the character before `position` begins. REQUIRES: valid UTF-8, 0 < position <= text.size().
size_t PreviousCharacter(std::string_view text, size_t position);

// Unicode's White_Space property.
bool IsWhiteSpace(char32_t code_point);

// A byte stream made into whole characters. Copyable; the state is at most 3 bytes.
class Utf8Stream {
 public:
  // The complete characters so far, with U+FFFD for invalid bytes. An incomplete character is held back.
  std::string Append(std::string_view bytes);
  // U+FFFD for a held beginning, or nothing. The stream starts afresh.
  std::string Flush();

 private:
  std::string pending_;
};

}  // namespace quire::runner::tokenizer
