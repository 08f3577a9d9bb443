// JSON texts (RFC 8259), read front to back into a receiver of values. A string is read where it stands: it
// is in memory once as a part of the text and once as what the receiver makes of it.
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

namespace quire::api {

// A string of a JSON text. Every ill-formed UTF-8 byte and every escaped lone surrogate of it stands for
// U+FFFD.
struct JsonString {
  std::string_view text;  // between the quotes
  size_t bytes = 0;       // of its value
  std::string Value() const;
};

// Reads the string whose opening quote is before `at`. False: it is broken at `at`. Else `at` is behind the
// closing quote.
bool ReadJsonString(std::string_view text, size_t& at, JsonString& string);

// A receiver has null(), boolean(bool), number_unsigned(uint64_t), number_integer(int64_t),
// number_float(double), string(JsonString), key(JsonString), start_array(), end_array(), start_object() and
// end_object(), each of which may give up with false, and gives up on values that are nested too deep. It
// gets what is not JSON with syntax_error(position) and of numbers that no double holds with range_error();
// both give false. One that has wide_integer(std::string_view) gets the text of an integer that no 64 bits
// hold with it.
template <class Receiver>
class JsonTextParser {
 public:
  JsonTextParser(std::string_view text, Receiver& receiver) : text_(text), receiver_(receiver) {}

  // Exactly one value. False: the receiver gave up, or got an error.
  bool Parse() {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
    if (!ReadValue()) return false;
    SkipSpace();
    return at_ == text_.size() || Fail();
  }

 private:
  static bool IsDigit(char c) { return c >= '0' && c <= '9'; }
  bool Fail() { return receiver_.syntax_error(at_ + 1); }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void SkipSpace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  bool SkipIf(char c) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool Skip(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return Fail();
    at_ += word.size();
    return true;
  }

  // Recursive: the receiver gives up on what is nested too deep.
  bool ReadValue() {
    SkipSpace();
    switch (Peek()) {
      case '{':
        return ReadObject();
      case '[':
        return ReadArray();
      case '"': {
        JsonString string;
        return ReadString(string) && receiver_.string(string);
      }
      case 't':
        return Skip("true") && receiver_.boolean(true);
      case 'f':
        return Skip("false") && receiver_.boolean(false);
      case 'n':
        return Skip("null") && receiver_.null();
      default:
        return ReadNumber();
    }
  }
  bool ReadString(JsonString& string) {
    ++at_;
    return ReadJsonString(text_, at_, string) || Fail();
  }
  bool ReadArray() {
    ++at_;
    if (!receiver_.start_array()) return false;
    if (SkipIf(']')) return receiver_.end_array();
    do {
      if (!ReadValue()) return false;
    } while (SkipIf(','));
    return SkipIf(']') ? receiver_.end_array() : Fail();
  }
  bool ReadObject() {
    ++at_;
    if (!receiver_.start_object()) return false;
    if (SkipIf('}')) return receiver_.end_object();
    do {
      SkipSpace();
      if (Peek() != '"') return Fail();
      JsonString name;
      if (!ReadString(name) || !receiver_.key(name)) return false;
      if (!SkipIf(':')) return Fail();
      if (!ReadValue()) return false;
    } while (SkipIf(','));
    return SkipIf('}') ? receiver_.end_object() : Fail();
  }
  bool SkipDigits() {
    if (!IsDigit(Peek())) return Fail();
    while (IsDigit(Peek())) ++at_;
    return true;
  }
  bool ReadNumber() {
    const size_t begin = at_;
    const bool negative = Peek() == '-';
    bool integer = true;
    if (negative) ++at_;
    if (Peek() == '0') {
      ++at_;
    } else if (!SkipDigits()) {
      return false;
    }
    if (Peek() == '.') {
      integer = false;
      ++at_;
      if (!SkipDigits()) return false;
    }
    if (Peek() == 'e' || Peek() == 'E') {
      integer = false;
      ++at_;
      if (Peek() == '+' || Peek() == '-') ++at_;
      if (!SkipDigits()) return false;
    }
    const std::string_view number = text_.substr(begin, at_ - begin);
    const char* const end = number.data() + number.size();
    if (integer && negative) {
      int64_t value = 0;
      if (std::from_chars(number.data(), end, value).ec == std::errc())
        return receiver_.number_integer(value);
    } else if (integer) {
      uint64_t value = 0;
      if (std::from_chars(number.data(), end, value).ec == std::errc())
        return receiver_.number_unsigned(value);
    }
    double value = 0;
    if constexpr (requires { receiver_.wide_integer(number); }) {
      if (integer) return receiver_.wide_integer(number);
    }
    // Out of range is also what is too small, and then 0 or nearly.
    if (std::from_chars(number.data(), end, value).ec != std::errc())
      value = std::strtod(std::string(number).c_str(), nullptr);
    return std::isfinite(value) ? receiver_.number_float(value) : receiver_.range_error();
  }

  const std::string_view text_;
  Receiver& receiver_;
  size_t at_ = 0;
};

}  // namespace quire::api
