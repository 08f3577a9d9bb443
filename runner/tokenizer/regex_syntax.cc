#include "runner/tokenizer/regex_syntax.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "api/base/ascii.h"

namespace quire::runner::tokenizer {
namespace {

constexpr std::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  api::Result<std::string> Run() {
    while (at_ < pattern_.size() && !error_) Item();
    if (error_) return std::unexpected(*std::move(error_));
    return std::move(out_);
  }

 private:
  void Refuse(std::string_view what) {
    if (error_) return;
    error_ = api::Error{api::ErrorCode::kBadModel, fmt::format("offset {}: {} is not supported", at_, what)};
  }

  std::string_view Rest() const { return pattern_.substr(at_); }
  void Copy(size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ += count;
  }
  void Replace(size_t count, std::string_view with) {
    out_ += with;
    at_ += count;
  }

  void Item() {
    switch (pattern_[at_]) {
      case '\\':
        return Escape(/*in_class=*/false);
      case '[':
        return Class();
      case '(':
        return Group();
      case '{':
        return Interval();
      default:
        return Copy(1);
    }
  }

  void Group() {
    const std::string_view rest = Rest();
    if (rest.starts_with("(*")) return Refuse("a group that begins with (*");
    if (!rest.starts_with("(?")) return Copy(1);
    for (const std::string_view open : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
      if (rest.starts_with(open)) return Copy(open.size());
    }
    // In the middle of an alternation the two engines give (?i) different reach.
    if (at_ == 0 && rest.starts_with("(?i)")) return Copy(4);
    Refuse("this kind of group");
  }

  // {n}, {n,}, {n,m}. Oniguruma also reads {,m}, and a + after an interval as a second repeat, not as
  // possessive.
  void Interval() {
    size_t end = at_ + 1;
    while (end < pattern_.size() && (api::IsAsciiDigit(pattern_[end]) || pattern_[end] == ',')) ++end;
    const bool closed = end < pattern_.size() && pattern_[end] == '}';
    if (!closed || !api::IsAsciiDigit(pattern_[at_ + 1])) return Refuse("a { that is not {n}, {n,} or {n,m}");
    if (end + 1 < pattern_.size() && pattern_[end + 1] == '+') return Refuse("a + after an interval");
    Copy(end + 1 - at_);
  }

  void Class() {
    Copy(1);
    if (Rest().starts_with('^')) Copy(1);
    if (Rest().starts_with(']')) return Refuse("an empty class");
    bool first = true;
    while (at_ < pattern_.size() && !error_) {
      const char c = pattern_[at_];
      if (c == ']') return Copy(1);
      if (c == '[') return Refuse("a class inside a class");
      if (Rest().starts_with("&&")) return Refuse("&& in a class");
      if (c == '-' && !first && Rest().size() > 1 && Rest()[1] == '\\' && IsSetEscape(at_ + 1)) {
        return Refuse("a range that ends in a set");
      }
      if (c == '\\') {
        const bool is_set = IsSetEscape(at_);
        Escape(/*in_class=*/true);
        if (is_set && Rest().starts_with('-') && !Rest().starts_with("-]")) {
          return Refuse("a range that begins with a set");
        }
      } else {
        Copy(1);
      }
      first = false;
    }
    Refuse("an unterminated class");
  }

  bool IsSetEscape(size_t backslash) const {
    return backslash + 1 < pattern_.size() &&
           std::string_view("sSdDwWpP").find(pattern_[backslash + 1]) != std::string_view::npos;
  }

  void Escape(bool in_class) {
    if (Rest().size() < 2) return Refuse("a \\ at the end");
    const char c = Rest()[1];
    switch (c) {
      case 's':
        return Replace(2, in_class ? std::string(kSpace) : fmt::format("[{}]", kSpace));
      case 'S':
        return Replace(2, in_class ? std::string(kNotSpace) : fmt::format("[^{}]", kSpace));
      case 'w':
        return Replace(2, in_class ? std::string(kWord) : fmt::format("[{}]", kWord));
      case 'W':
        if (in_class) return Refuse("\\W in a class");
        return Replace(2, fmt::format("[^{}]", kWord));
      case 'd':
      case 'D':
      case 'n':
      case 'r':
      case 't':
      case 'f':
        return Copy(2);
      case 'v':  // PCRE2's \v is any vertical space
        return Replace(2, R"(\x{b})");
      case 'A':
      case 'z':
        if (in_class) return Refuse("this escape in a class");
        return Copy(2);
      case 'p':
      case 'P':
        return Property();
      case 'x':
      case 'u':
        return CodePoint();
      default:
        if (api::IsAsciiAlnum(c)) return Refuse(fmt::format("\\{}", c));
        return Copy(2);
    }
  }

  void Property() {
    const std::string_view rest = Rest();
    size_t end = 2;
    if (rest.size() > 2 && rest[2] == '{') {
      end = 3;
      if (end < rest.size() && rest[end] == '^') ++end;
      while (end < rest.size() && (api::IsAsciiAlnum(rest[end]) || rest[end] == '_' || rest[end] == '='))
        ++end;
      if (end < rest.size() && rest[end] == '}') return Copy(end + 1);
    }
    Refuse("a \\p without {name}");
  }

  void CodePoint() {  // \uHHHH, \xHH below 0x80 (above, Oniguruma means a byte), \x{H...}
    const std::string_view rest = Rest();
    const bool braces = rest.starts_with("\\x{");
    const size_t begin = braces ? 3 : 2;
    const size_t digits_max = braces ? 6 : rest[1] == 'u' ? 4 : 2;
    size_t end = begin;
    uint32_t value = 0;
    while (end < rest.size() && end - begin < digits_max && api::HexValue(rest[end]) >= 0) {
      value = value * 16 + static_cast<uint32_t>(api::HexValue(rest[end++]));
    }
    if (braces ? end == begin || end >= rest.size() || rest[end] != '}' : end - begin != digits_max) {
      return Refuse("a malformed code point");
    }
    if (rest[1] == 'x' && !braces && value >= 0x80) return Refuse("a \\x above 7F");
    Replace(end + (braces ? 1 : 0), fmt::format("\\x{{{:x}}}", value));
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
  std::optional<api::Error> error_;
};

}  // namespace

api::Result<std::string> TranslateOniguruma(std::string_view pattern) { return Translator(pattern).Run(); }

}  // namespace quire::runner::tokenizer
