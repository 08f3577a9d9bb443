// Template source to tokens, with Jinja's whitespace rules for trim_blocks and lstrip_blocks: a newline right
// after a block tag or comment goes, and so do spaces before one that starts its line; `-` beside a delimiter
// strips all whitespace on that side, `+` keeps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runner/jinja/budget.h"

namespace quire::runner::jinja {

enum class TokenKind : uint8_t {
  kData,
  kPrintBegin,
  kPrintEnd,
  kTagBegin,
  kTagEnd,
  kName,
  kString,
  kInt,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text = {};  // data, name, operator, or a string literal's value
  int64_t integer = 0;
  double number = 0;

  bool IsOperator(std::string_view sign) const { return kind == TokenKind::kOperator && text == sign; }
  bool IsName(std::string_view name) const { return kind == TokenKind::kName && text == name; }
};

struct SyntaxError {
  int line = 0;
  std::string message;
};

// Throws SyntaxError. REQUIRES: source is valid UTF-8. The last token is kEnd.
std::vector<Token> Tokenize(std::string_view source);

}  // namespace quire::runner::jinja
