#include "runner/jinja/parser.h"

#include <fmt/format.h>

#include <utility>

namespace quire::runner::jinja {

Program ParseProgram(std::string_view source, const Limits& limits) {
  return Parser(Tokenize(source), limits).Parse();
}

Parser::Parser(std::vector<Token> tokens, const Limits& limits)
    : tokens_(std::move(tokens)), limits_(limits) {}

Program Parser::Parse() {
  program_.limits = limits_;
  program_.loop = Intern("loop");
  program_.varargs = Intern("varargs");
  program_.caller = Intern("caller");
  program_.kwargs = Intern("kwargs");
  program_.body = ParseBody({});
  return std::move(program_);
}

bool Parser::SkipOperator(std::string_view sign) {
  if (!current().IsOperator(sign)) return false;
  Skip();
  return true;
}

bool Parser::SkipName(std::string_view name) {
  if (!current().IsName(name)) return false;
  Skip();
  return true;
}

void Parser::ExpectOperator(std::string_view sign) {
  if (!SkipOperator(sign)) FailUnexpected();
}

void Parser::ExpectName(std::string_view name) {
  if (!SkipName(name)) FailUnexpected();
}

void Parser::Expect(TokenKind kind) {
  if (current().kind != kind) FailUnexpected();
  Skip();
}

std::string Parser::ConsumeName() {
  if (current().kind != TokenKind::kName) FailUnexpected();
  std::string name = current().text;
  Skip();
  return name;
}

void Parser::Fail(std::string message) const { throw SyntaxError{current().line, std::move(message)}; }

void Parser::FailUnexpected() const {
  switch (current().kind) {
    case TokenKind::kEnd:
      Fail("unexpected end of template");
    case TokenKind::kPrintEnd:
      Fail("unexpected '}}'");
    case TokenKind::kTagEnd:
      Fail("unexpected '%}'");
    case TokenKind::kInt:
    case TokenKind::kFloat:
      Fail("unexpected number");
    case TokenKind::kString:
      Fail("unexpected string");
    default:
      Fail(fmt::format("unexpected '{}'", current().text));
  }
}

SymbolId Parser::Intern(std::string_view name) {
  const auto [found, added] =
      symbol_ids_.try_emplace(std::string(name), static_cast<SymbolId>(program_.symbols.size()));
  if (added) program_.symbols.push_back(MakeText(std::string(name)));
  return found->second;
}

ExprPtr Parser::Finish(ExprPtr node, int deepest_operand) const {
  node->depth = deepest_operand + 1;
  if (node->depth > limits_.nesting_max) Fail("nested too deeply");
  return node;
}

bool Parser::AtTupleEnd() const {
  return current().kind == TokenKind::kPrintEnd || current().kind == TokenKind::kTagEnd ||
         current().IsOperator(")");
}

}  // namespace quire::runner::jinja
