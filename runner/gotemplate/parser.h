// From a template's source to its Program. Throws SyntaxError, which Template::Parse catches, and
// WorkStopped: a request may bring a template.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/ascii.h"
#include "runner/gotemplate/ast.h"
#include "runner/gotemplate/variables.h"

namespace quire::runner::gotemplate {

constexpr bool IsWordStart(char c) { return api::IsAsciiLetter(c) || c == '_'; }
constexpr bool IsWordPart(char c) { return api::IsAsciiAlnum(c) || c == '_'; }

struct SyntaxError {
  int line = 1;
  std::string message;
};

class Parser {
 public:
  Parser(std::string_view source, const jinja::Limits& limits) : source_(source) { program_.limits = limits; }

  Program Parse();

 private:
  enum class End { kSource, kEnd, kElse };

  [[noreturn]] void Fail(std::string message) const;

  // One more level while it lives.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser.nesting_ > parser.program_.limits.nesting_max) parser.Fail("nested too deeply");
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  End ParseList(std::vector<Node>& out, bool inside);
  void ParseText(std::vector<Node>& out);
  bool SkipComment();
  Node ParseBranch(Node::Kind kind, std::string_view word);
  Node ParseLoopExit(Node::Kind kind, std::string_view word);
  Node ParseTemplate(std::string_view word);
  void ParseDefine(std::string_view word);
  void ParseTemplateBody(const std::string& name);
  std::string ParseName(std::string_view word);
  void CloseAction();

  Pipe ParsePipe(bool of_range);
  void ParseVariables(Pipe& pipe, bool of_range);
  Command ParseCommand();
  Operand ParseOperand();
  Operand ParseWord();
  void ParseFields(Operand& operand);
  std::string ParseVariableName();
  jinja::Value ParseNumber();
  std::string ParseQuoted(char quote);  // stands at the first quote
  std::string ParseRaw();
  char32_t ParseCharacter();
  void ParseEscape(std::string& out);

  bool AtClose() const;
  bool SkipSpaces();
  bool Consume(std::string_view token);
  std::string_view PeekWord() const;
  char Peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  void Advance(size_t bytes);  // counts work

  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool trim_ = false;  // the last action ended with -}}
  int nesting_ = 0;
  int loops_ = 0;
  Variables variables_;
  Program program_;
  std::vector<std::pair<std::string, int>> called_;  // templates by name, and the line
};

}  // namespace quire::runner::gotemplate
