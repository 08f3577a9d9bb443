// UTF-8 one character at a time, with the maximal-subpart rule for what is not UTF-8 (Unicode 15,
// section 3.9): each longest run of bytes that could begin a character, or else one byte, stands for one
// U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire::api {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

struct CodePoint {
  enum class Kind : uint8_t {
    kWhole,       // `bytes` bytes are one character
    kInvalid,     // `bytes` bytes are one maximal invalid subpart
    kIncomplete,  // all the text that is left, the beginning of a character
  };
  char32_t value = 0xFFFD;  // U+FFFD unless whole
  size_t bytes = 0;
  Kind kind = Kind::kInvalid;

  bool whole() const { return kind == Kind::kWhole; }
};

constexpr bool IsContinuationByte(char c) { return (static_cast<uint8_t>(c) & 0xC0U) == 0x80; }
constexpr bool IsSurrogate(char32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

// What begins at `at`. REQUIRES: at < text.size().
CodePoint CodePointAt(std::string_view text, size_t at = 0);
// What ends at `end`. REQUIRES: valid UTF-8, 0 < end <= text.size(), and a character ends there.
CodePoint CodePointBefore(std::string_view text, size_t end);

bool IsValidUtf8(std::string_view text);
// Characters that begin in the text.
size_t CountCodePoints(std::string_view text);

// Appends nothing and returns false for surrogates and beyond U+10FFFF, which UTF-8 cannot say.
bool AppendUtf8(std::string& out, char32_t value);

// The text with U+FFFD for each maximal invalid subpart.
std::string ReplaceInvalidUtf8(std::string_view text);

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

}  // namespace quire::api
