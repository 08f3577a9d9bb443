#include "runner/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runner/jinja/string_literal.h"
#include "runner/jinja/unicode.h"

namespace quire::runner::jinja {
namespace {

constexpr std::array<std::string_view, 26> kOperators = {
    // Longest first.
    "//", "**", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
    ">",  "=",  ".",  ":",  "|",  ",",  ";", "(", ")", "[", "]", "{", "}",
};

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

// "\r\n" and "\r" become "\n"; one newline at the very end goes.
std::string NormalizeNewlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text.push_back(source[i]);
      continue;
    }
    text.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(NormalizeNewlines(source)), rest_(text_) {}

  std::vector<Token> Run() {
    while (at_ < rest_.size()) {
      const size_t tag = FindTag();
      if (tag == std::string_view::npos) {
        EmitData(rest_.substr(at_));
        Advance(rest_.size());
        break;
      }
      LexTag(tag);
    }
    Emit(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void Fail(std::string message) const { throw SyntaxError{line_, std::move(message)}; }

  char Peek(size_t offset) const { return at_ + offset < rest_.size() ? rest_[at_ + offset] : '\0'; }

  void Advance(size_t to) {
    line_ += static_cast<int>(std::count(rest_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         rest_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  Token& Emit(TokenKind kind, std::string text = {}) {
    tokens_.push_back(Token{.kind = kind, .line = line_, .text = std::move(text)});
    return tokens_.back();
  }

  void EmitData(std::string_view data) {
    if (!data.empty()) Emit(TokenKind::kData, std::string(data));
  }

  size_t SkipSpaces(size_t at) const {
    while (at < rest_.size()) {
      const CodePoint c = CodePointAt(rest_, at);
      if (!IsSpace(c.value)) break;
      at += c.bytes;
    }
    return at;
  }

  size_t FindTag() const {
    for (size_t at = rest_.find('{', at_); at != std::string_view::npos; at = rest_.find('{', at + 1)) {
      const char next = at + 1 < rest_.size() ? rest_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return std::string_view::npos;
  }

  // The data before a tag, after whitespace control. `strippable`: lstrip_blocks applies to this kind of tag.
  std::string_view StripBefore(std::string_view data, char sign, bool strippable) const {
    if (sign == '-') {
      size_t end = data.size();
      while (end > 0) {
        const CodePoint last = CodePointBefore(data, end);
        if (!IsSpace(last.value)) break;
        end -= last.bytes;
      }
      return data.substr(0, end);
    }
    if (sign == '+' || !strippable) return data;
    const size_t newline = data.rfind('\n');
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (newline == std::string_view::npos && !line_starting_) return data;
    const Trimmed line = TrimSpaces(data.substr(line_begin));
    return line.begin == line.end ? data.substr(0, line_begin) : data;
  }

  // Consumes a closing delimiter at `at` (its sign, if any, before `close`) and the whitespace it eats.
  bool ConsumeClose(std::string_view close, bool trims_newline) {
    const char first = Peek(0);
    const size_t sign = first == '-' || (first == '+' && trims_newline) ? 1 : 0;
    if (!rest_.substr(at_ + std::min(sign, rest_.size() - at_)).starts_with(close)) return false;
    size_t end = at_ + sign + close.size();
    if (sign == 1 && first == '-') {
      end = SkipSpaces(end);
    } else if (sign == 0 && trims_newline && end < rest_.size() && rest_[end] == '\n') {
      ++end;
    }
    line_starting_ = rest_[end - 1] == '\n';
    Advance(end);
    return true;
  }

  char ConsumeSign() {
    const char sign = Peek(0);
    if (sign != '-' && sign != '+') return '\0';
    Advance(at_ + 1);
    return sign;
  }

  void LexTag(size_t tag) {
    const char kind = rest_[tag + 1];
    const std::string_view data = rest_.substr(at_, tag - at_);
    const char sign = tag + 2 < rest_.size() ? rest_[tag + 2] : '\0';
    EmitData(StripBefore(data, sign, kind != '{'));
    Advance(tag + 2);
    ConsumeSign();
    if (kind == '#') return SkipComment();
    if (kind == '%' && ConsumeRawTag()) return LexRaw();
    const bool block = kind == '%';
    Emit(block ? TokenKind::kTagBegin : TokenKind::kPrintBegin);
    LexInside(block);
  }

  void SkipComment() {
    size_t end = rest_.find("#}", at_);
    if (end == std::string_view::npos) Fail("Missing end of comment tag");
    if (end > at_ && (rest_[end - 1] == '-' || rest_[end - 1] == '+')) --end;
    Advance(end);
    ConsumeClose("#}", true);
  }

  bool ConsumeRawTag() {
    const size_t word = SkipSpaces(at_);
    if (!rest_.substr(word).starts_with("raw")) return false;
    const size_t before = at_;
    const int line_before = line_;
    Advance(SkipSpaces(word + 3));
    const bool keeps_newline = Peek(0) != '-';
    if (keeps_newline ? rest_.substr(at_).starts_with("%}") : ConsumeClose("%}", false)) {
      if (keeps_newline) {
        Advance(at_ + 2);
        line_starting_ = false;
      }
      return true;
    }
    at_ = before;
    line_ = line_before;
    return false;
  }

  void LexRaw() {
    for (size_t tag = rest_.find("{%", at_); tag != std::string_view::npos; tag = rest_.find("{%", tag + 1)) {
      const char sign = tag + 2 < rest_.size() ? rest_[tag + 2] : '\0';
      const size_t word = SkipSpaces(tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
      if (!rest_.substr(word).starts_with("endraw")) continue;
      const size_t close = SkipSpaces(word + 6);
      const size_t close_sign = close < rest_.size() && (rest_[close] == '-' || rest_[close] == '+') ? 1 : 0;
      if (!rest_.substr(std::min(close + close_sign, rest_.size())).starts_with("%}")) continue;
      EmitData(StripBefore(rest_.substr(at_, tag - at_), sign, true));
      Advance(close);
      ConsumeClose("%}", true);
      return;
    }
    Fail("Missing end of raw directive");
  }

  void LexInside(bool block) {
    brackets_.clear();
    while (true) {
      Advance(SkipSpaces(at_));
      if (at_ >= rest_.size()) Fail("unexpected end of template");
      if (brackets_.empty()) {
        const int line = line_;
        if (ConsumeClose(block ? "%}" : "}}", block)) {
          Emit(block ? TokenKind::kTagEnd : TokenKind::kPrintEnd).line = line;
          return;
        }
      }
      LexToken();
    }
  }

  void LexToken() {
    const char c = Peek(0);
    if (c == '"' || c == '\'') return LexString(c);
    if (IsAsciiDigit(c)) return LexNumber();
    const CodePoint point = CodePointAt(rest_, at_);
    if (IsIdentifierStart(point.value)) return LexName();
    LexOperator();
  }

  void LexName() {
    size_t end = at_;
    while (end < rest_.size()) {
      const CodePoint c = CodePointAt(rest_, end);
      if (!IsIdentifierPart(c.value)) break;
      end += c.bytes;
    }
    Emit(TokenKind::kName, std::string(rest_.substr(at_, end - at_)));
    Advance(end);
  }

  void LexString(char quote) {
    size_t end = at_ + 1;
    while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) Fail(fmt::format("unexpected char '{}'", quote));
    auto value = UnescapeStringLiteral(rest_.substr(at_ + 1, end - at_ - 1));
    if (!value) Fail(std::move(value).error());
    Emit(TokenKind::kString, *std::move(value));
    Advance(end + 1);
  }

  // Digits with single underscores between them.
  size_t SkipDigits(size_t at) const {
    while (at < rest_.size() && (IsAsciiDigit(rest_[at]) || (rest_[at] == '_' && at + 1 < rest_.size() &&
                                                             IsAsciiDigit(rest_[at + 1])))) {
      ++at;
    }
    return at;
  }

  void LexNumber() {
    const bool after_dot = at_ > 0 && rest_[at_ - 1] == '.';
    const size_t digits_end = SkipDigits(at_);
    size_t end = digits_end;
    const auto digit_at = [this](size_t at) { return at < rest_.size() && IsAsciiDigit(rest_[at]); };
    if (!after_dot) {
      if (end < rest_.size() && rest_[end] == '.' && digit_at(end + 1)) end = SkipDigits(end + 1);
      if (end < rest_.size() && (rest_[end] == 'e' || rest_[end] == 'E')) {
        const size_t sign =
            end + 1 < rest_.size() && (rest_[end + 1] == '+' || rest_[end + 1] == '-') ? 1 : 0;
        if (digit_at(end + 1 + sign)) end = SkipDigits(end + 1 + sign);
      }
    }
    if (end != digits_end) {
      const auto number = ParseFloat(rest_.substr(at_, end - at_));
      if (!number) Fail("malformed number");
      Emit(TokenKind::kFloat).number = *number;
    } else {
      end = EmitInteger(digits_end);
    }
    Advance(end);
  }

  size_t EmitInteger(size_t digits_end) {
    size_t end = digits_end;
    if (rest_[at_] == '0') {
      const char mark = Peek(1);
      if (mark == 'x' || mark == 'X' || mark == 'o' || mark == 'O' || mark == 'b' || mark == 'B') {
        end = at_ + 2;
        while (end < rest_.size() && (IsIdentifierPart(static_cast<unsigned char>(rest_[end])))) ++end;
      } else if (rest_.substr(at_, digits_end - at_).find_first_not_of("0_") != std::string_view::npos) {
        Fail("leading zeros in an integer");
      }
    }
    const auto integer =
        ParseInt(rest_.substr(at_, end - at_), rest_[at_] == '0' && end != digits_end ? 0 : 10);
    if (!integer) Fail("integer is malformed or beyond 64 bits");
    Emit(TokenKind::kInt).integer = *integer;
    return end;
  }

  void LexOperator() {
    const auto* found =
        std::find_if(kOperators.begin(), kOperators.end(),
                     [this](std::string_view candidate) { return rest_.substr(at_).starts_with(candidate); });
    if (found == kOperators.end()) {
      const CodePoint c = CodePointAt(rest_, at_);
      Fail(fmt::format("unexpected char '{}'", rest_.substr(at_, c.bytes)));
    }
    const char sign = found->front();
    if (found->size() == 1) {
      if (sign == '(' || sign == '[' || sign == '{')
        brackets_.push_back(sign == '(' ? ')' : sign == '[' ? ']' : '}');
      if (sign == ')' || sign == ']' || sign == '}') {
        if (brackets_.empty()) Fail(fmt::format("unexpected '{}'", sign));
        if (brackets_.back() != sign)
          Fail(fmt::format("unexpected '{}', expected '{}'", sign, brackets_.back()));
        brackets_.pop_back();
      }
    }
    Emit(TokenKind::kOperator, std::string(*found));
    Advance(at_ + found->size());
  }

  std::string text_;
  std::string_view rest_;  // all of text_
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the last thing taken ended its line
  std::string brackets_;       // the closing ones awaited
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace quire::runner::jinja
