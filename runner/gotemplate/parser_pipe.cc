// Parser: what stands inside an action.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "runner/gotemplate/parser.h"
#include "runner/jinja/unicode.h"

namespace quire::runner::gotemplate {
namespace {

using jinja::Value;

bool EndsOperand(char c) {
  return c == '\0' || c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '|' || c == ')' || c == '}' ||
         c == ',';
}

}  // namespace

std::string Parser::ParseVariableName() {
  size_t end = at_ + 1;
  while (end < source_.size() && IsWordPart(source_[end])) ++end;
  std::string name(source_.substr(at_, end - at_));
  Advance(end - at_);
  return name;
}

// "$a := ", "$a, $b := " (of a range), "$a = "; nothing is consumed where none of these follows.
void Parser::ParseVariables(Pipe& pipe, bool of_range) {
  const size_t at = at_;
  const int line = line_;
  if (Peek() == '$') {
    pipe.variables.push_back(ParseVariableName());
    SkipSpaces();
    if (of_range && Consume(",")) {
      SkipSpaces();
      if (Peek() != '$') Fail("range: a variable is missing after the comma");
      pipe.variables.push_back(ParseVariableName());
      SkipSpaces();
    }
    if (Consume(":=")) return;
    if (Peek() == '=' && Peek(1) != '=') {
      Advance(1);
      pipe.assigns = true;
      return;
    }
    if (pipe.variables.size() == 2) Fail("range: := is missing after the variables");
  }
  pipe.variables.clear();
  at_ = at;
  line_ = line;
}

Pipe Parser::ParsePipe(bool of_range) {
  const Nesting nesting(*this);
  Pipe pipe;
  SkipSpaces();
  ParseVariables(pipe, of_range);
  do {
    pipe.commands.push_back(ParseCommand());
    if (pipe.commands.size() > 1) {
      const Operand& first = pipe.commands.back().operands.front();
      if (first.kind != Operand::Kind::kFunction)
        Fail("a value is piped into something that is not a function");
    }
  } while (Consume("|"));
  for (const std::string& name : pipe.variables) {
    if (pipe.assigns && !variables_.Contains(name)) Fail(fmt::format("undefined variable \"{}\"", name));
    if (!pipe.assigns) variables_.Declare(name);
  }
  return pipe;
}

Command Parser::ParseCommand() {
  Command command;
  SkipSpaces();
  while (!AtClose() && Peek() != '|' && Peek() != ')') {
    command.operands.push_back(ParseOperand());
    if (!EndsOperand(Peek())) Fail("a space is missing between two operands");
    SkipSpaces();
    if (at_ >= source_.size()) Fail("unclosed action");
    if (Peek() == ',') Fail("unexpected \",\"");
    if (Peek() == '}' && !AtClose()) Fail("unexpected \"}\"");
  }
  if (command.operands.empty()) Fail("missing value");
  if (command.operands.size() > 1 && command.operands.front().kind != Operand::Kind::kFunction) {
    Fail("arguments are passed to something that is not a function");
  }
  return command;
}

Operand Parser::ParseOperand() {
  Operand operand;
  const char c = Peek();
  if (c == '.') {
    if (!IsWordStart(Peek(1))) {
      Advance(1);
      return operand;
    }
  } else if (c == '$') {
    operand.kind = Operand::Kind::kVariable;
    operand.name = ParseVariableName();
    if (!variables_.Contains(operand.name)) Fail(fmt::format("undefined variable \"{}\"", operand.name));
  } else if (c == '(') {
    Advance(1);
    operand.kind = Operand::Kind::kPipe;
    operand.pipe = std::make_unique<Pipe>(ParsePipe(/*of_range=*/false));
    SkipSpaces();
    if (!Consume(")")) Fail("\")\" is missing");
  } else if (IsWordStart(c)) {
    return ParseWord();
  } else {
    operand.kind = Operand::Kind::kLiteral;
    if (c == '"') {
      operand.literal = Value::String(ParseQuoted('"'));
    } else if (c == '`') {
      operand.literal = Value::String(ParseRaw());
    } else if (c == '\'') {
      operand.literal = Value(static_cast<int64_t>(ParseCharacter()));
    } else if (api::IsAsciiDigit(c) || c == '-' || c == '+') {
      operand.literal = ParseNumber();
    } else {
      Fail(c == '\0' ? "unclosed action" : "unexpected character in an action");
    }
    return operand;
  }
  ParseFields(operand);
  program_.fields.insert(operand.fields.begin(), operand.fields.end());
  return operand;
}

Operand Parser::ParseWord() {
  const std::string_view word = PeekWord();
  Operand operand;
  operand.kind = Operand::Kind::kLiteral;
  if (word == "true" || word == "false") {
    operand.literal = Value(word == "true");
  } else if (word != "nil") {
    operand.kind = Operand::Kind::kFunction;
    operand.function = FindFunction(word);
    if (operand.function == nullptr) Fail(fmt::format("function \"{}\" is not defined", word));
  }
  Advance(word.size());
  return operand;
}

void Parser::ParseFields(Operand& operand) {
  while (Peek() == '.' && IsWordStart(Peek(1))) {
    Advance(1);
    const std::string_view field = PeekWord();
    operand.fields.emplace_back(field);
    Advance(field.size());
  }
}

Value Parser::ParseNumber() {
  size_t end = at_ + 1;
  while (end < source_.size() && (IsWordPart(source_[end]) || source_[end] == '.' ||
                                  ((source_[end] == '-' || source_[end] == '+') &&
                                   (source_[end - 1] == 'e' || source_[end - 1] == 'E')))) {
    ++end;
  }
  std::string digits(source_.substr(at_, end - at_));
  Advance(end - at_);
  std::erase(digits, '_');
  if (const auto whole = jinja::ParseInt(digits, 0)) return Value(*whole);
  if (const auto number = jinja::ParseFloat(digits);
      number && digits.find_first_of("nN") == std::string::npos) {
    return Value(*number);
  }
  Fail(fmt::format("bad number \"{}\"", digits));
}

std::string Parser::ParseRaw() {
  const size_t end = source_.find('`', at_ + 1);
  if (end == std::string_view::npos) Fail("unclosed `");
  std::string text(source_.substr(at_ + 1, end - at_ - 1));
  Advance(end + 1 - at_);
  std::erase(text, '\r');
  return text;
}

std::string Parser::ParseQuoted(char quote) {
  std::string text;
  Advance(1);
  while (Peek() != quote) {
    if (at_ >= source_.size() || Peek() == '\n') Fail(std::string("unclosed ") + quote);
    if (Peek() == '\\') {
      ParseEscape(text);
    } else {
      text += Peek();
      Advance(1);
    }
  }
  Advance(1);
  return text;
}

char32_t Parser::ParseCharacter() {
  const std::string text = ParseQuoted('\'');
  if (text.empty() || jinja::CodePointAt(text, 0).bytes != text.size()) Fail("bad character constant");
  return jinja::CodePointAt(text, 0).value;
}

void Parser::ParseEscape(std::string& out) {
  constexpr std::string_view kNames = "abfnrtv\\\"'";
  constexpr std::string_view kBytes = "\a\b\f\n\r\t\v\\\"'";
  const char name = Peek(1);
  if (const size_t at = kNames.find(name); name != '\0' && at != std::string_view::npos) {
    out += kBytes[at];
    Advance(2);
    return;
  }
  const size_t digits = name == 'x' ? 2 : name == 'u' ? 4 : name == 'U' ? 8 : 0;
  const std::string_view hex = source_.substr(std::min(at_ + 2, source_.size()), digits);
  uint32_t code = 0;
  const auto read = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
  const bool whole =
      digits > 0 && hex.size() == digits && read.ec == std::errc() && read.ptr == hex.data() + digits;
  // A single byte above 0x7F would be invalid UTF-8.
  if (!whole || (name == 'x' && code > 0x7F) || !api::AppendUtf8(out, code)) {
    Fail("this escape is not supported in a string");
  }
  Advance(2 + digits);
}

}  // namespace quire::runner::gotemplate
