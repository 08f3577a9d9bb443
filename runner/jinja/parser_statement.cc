// Statements: what stands between {% and %}.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runner/jinja/parser.h"

namespace quire::runner::jinja {

Block Parser::ParseBody(EndTags end_tags) {
  const Nested nested(*this);
  Block block;
  while (current().kind != TokenKind::kEnd) {
    const int line = current().line;
    if (current().kind == TokenKind::kData) {
      auto data = std::make_unique<DataStmt>(line);
      data->data = current().text;
      block.push_back(std::move(data));
      Skip();
    } else if (current().kind == TokenKind::kPrintBegin) {
      Skip();
      auto print = std::make_unique<PrintStmt>(line);
      print->value = ParseTuple();
      block.push_back(std::move(print));
      Expect(TokenKind::kPrintEnd);
    } else {
      Expect(TokenKind::kTagBegin);
      if (std::any_of(end_tags.begin(), end_tags.end(), [this](auto tag) { return current().IsName(tag); })) {
        return block;
      }
      if (current().IsName("print")) {
        ParsePrintTag(block);
      } else {
        block.push_back(ParseStatement());
      }
      Expect(TokenKind::kTagEnd);
    }
  }
  if (end_tags.size() != 0)
    Fail(fmt::format("unexpected end of template, expected '{}'", *(end_tags.end() - 1)));
  return block;
}

Block Parser::ParseTagBody(EndTags end_tags) {
  SkipOperator(":");
  Expect(TokenKind::kTagEnd);
  return ParseBody(end_tags);
}

std::unique_ptr<Stmt> Parser::ParseStatement() {
  static constexpr std::pair<std::string_view, std::unique_ptr<Stmt> (Parser::*)()> kStatements[] = {
      {"if", &Parser::ParseIf},
      {"for", &Parser::ParseFor},
      {"set", &Parser::ParseSet},
      {"macro", &Parser::ParseMacro},
      {"filter", &Parser::ParseFilterBlock},
      {"generation", &Parser::ParseGeneration},
      {"with", &Parser::ParseWith},
      {"block", &Parser::ParseBlock},
      {"call", &Parser::ParseCallBlock},
  };
  if (current().kind != TokenKind::kName) FailUnexpected();
  for (const auto& [name, parse] : kStatements) {
    if (current().IsName(name)) return (this->*parse)();
  }
  if (current().IsName("break")) return ParseJump(StmtKind::kBreak);
  if (current().IsName("continue")) return ParseJump(StmtKind::kContinue);
  Fail(fmt::format("unknown tag '{}'", current().text));
}

std::unique_ptr<Stmt> Parser::ParseJump(StmtKind kind) {
  if (loops_ == 0) Fail(fmt::format("'{}' outside a loop", current().text));
  auto node = std::make_unique<JumpStmt>(kind, current().line);
  Skip();
  return node;
}

void Parser::ParsePrintTag(Block& block) {
  Skip();
  for (bool first = true; current().kind != TokenKind::kTagEnd; first = false) {
    if (!first) ExpectOperator(",");
    auto node = std::make_unique<PrintStmt>(current().line);
    node->value = ParseExpression();
    block.push_back(std::move(node));
  }
}

std::unique_ptr<Stmt> Parser::ParseFor() {
  auto node = std::make_unique<ForStmt>(current().line);
  Skip();
  if (current().IsName("loop")) Fail("can't assign to special loop variable in for-loop target");
  node->target = ParseTarget(false);
  ExpectName("in");
  node->iterable = ParseTuple(false);
  if (SkipName("if")) node->condition = ParseExpression();
  node->recursive = SkipName("recursive");
  ++loops_;
  node->body = ParseTagBody({"else", "endfor"});
  --loops_;
  if (SkipName("else")) node->otherwise = ParseTagBody({"endfor"});
  ExpectName("endfor");
  return node;
}

std::unique_ptr<Stmt> Parser::ParseIf() {
  auto node = std::make_unique<IfStmt>(current().line);
  do {
    Skip();
    ExprPtr condition = ParseTuple(false);
    node->branches.emplace_back(std::move(condition), ParseTagBody({"elif", "else", "endif"}));
  } while (current().IsName("elif"));
  if (SkipName("else")) node->otherwise = ParseTagBody({"endif"});
  ExpectName("endif");
  return node;
}

std::unique_ptr<Stmt> Parser::ParseSet() {
  const int line = current().line;
  Skip();
  Target target = ParseTarget(true);
  if (SkipOperator("=")) {
    auto node = std::make_unique<SetStmt>(line);
    node->target = std::move(target);
    node->value = ParseTuple();
    return node;
  }
  auto node = std::make_unique<SetBlockStmt>(line);
  node->target = std::move(target);
  if (current().IsOperator("|")) node->filters = ParseFilter(nullptr);
  node->body = ParseTagBody({"endset"});
  ExpectName("endset");
  return node;
}

void Parser::ParseSignature(MacroDef& macro) {
  ExpectOperator("(");
  for (bool first = true; !current().IsOperator(")"); first = false) {
    if (!first) ExpectOperator(",");
    const std::string name = ConsumeAssignableName();
    if (SkipOperator("=")) {
      macro.defaults.push_back(ParseExpression());
    } else if (!macro.defaults.empty()) {
      Fail("non-default argument follows default argument");
    }
    const SymbolId symbol = Intern(name);
    macro.parameters.emplace_back(symbol, program_.symbols[symbol]);
  }
  Skip();
}

std::unique_ptr<Stmt> Parser::ParseMacro() {
  auto node = std::make_unique<MacroStmt>(current().line);
  Skip();
  const std::string name = ConsumeAssignableName();
  node->symbol = Intern(name);
  node->macro.name = program_.symbols[node->symbol];
  ParseSignature(node->macro);
  ParseMacroBody(node->macro, "endmacro");
  return node;
}

void Parser::ParseMacroBody(MacroDef& macro, const char* end) {
  const int loops_outside = std::exchange(loops_, 0);
  macros_.push_back(&macro);
  macro.body = ParseTagBody({end});
  macros_.pop_back();
  loops_ = loops_outside;
  ExpectName(end);
}

std::unique_ptr<Stmt> Parser::ParseCallBlock() {
  auto node = std::make_unique<CallBlockStmt>(current().line);
  Skip();
  node->caller.name = program_.symbols[program_.caller];
  if (current().IsOperator("(")) ParseSignature(node->caller);
  node->call = ParseExpression();
  if (node->call->kind != ExprKind::kCall) Fail("expected call");
  ParseMacroBody(node->caller, "endcall");
  return node;
}

std::unique_ptr<Stmt> Parser::ParseWith() {
  auto node = std::make_unique<ScopeStmt>(current().line);
  Skip();
  while (current().kind != TokenKind::kTagEnd) {
    if (!node->names.empty()) ExpectOperator(",");
    Target target = ParseTarget(false);
    ExpectOperator("=");
    node->names.emplace_back(std::move(target), ParseExpression());
  }
  node->body = ParseTagBody({"endwith"});
  ExpectName("endwith");
  return node;
}

// Nothing extends a chat template: a block is what stands in it.
std::unique_ptr<Stmt> Parser::ParseBlock() {
  auto node = std::make_unique<ScopeStmt>(current().line);
  Skip();
  const std::string name = ConsumeName();
  while (current().IsName("scoped") || current().IsName("required")) Skip();
  node->body = ParseTagBody({"endblock"});
  ExpectName("endblock");
  SkipName(name);
  return node;
}

std::unique_ptr<Stmt> Parser::ParseFilterBlock() {
  auto node = std::make_unique<FilterBlockStmt>(current().line);
  Skip();
  node->filters = ParseFilter(nullptr);
  node->body = ParseTagBody({"endfilter"});
  ExpectName("endfilter");
  return node;
}

std::unique_ptr<Stmt> Parser::ParseGeneration() {
  auto node = std::make_unique<ScopeStmt>(current().line);
  Skip();
  node->body = ParseTagBody({"endgeneration"});
  ExpectName("endgeneration");
  return node;
}

std::string Parser::ConsumeAssignableName() {
  static constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
  if (std::find(std::begin(kConstants), std::end(kConstants), current().text) != std::end(kConstants)) {
    Fail("can't assign to a constant");
  }
  return ConsumeName();
}

Target Parser::ParseTargetPart(bool with_namespace) {
  const Nested nested(*this);
  if (SkipOperator("(")) {
    Target target = ParseTarget(with_namespace);
    ExpectOperator(")");
    return target;
  }
  Target target;
  target.symbol = Intern(ConsumeAssignableName());
  if (with_namespace && SkipOperator(".")) target.attribute = MakeText(ConsumeName());
  return target;
}

Target Parser::ParseTarget(bool with_namespace) {
  Target first = ParseTargetPart(with_namespace);
  if (!current().IsOperator(",")) return first;
  Target target;
  target.unpacks = true;
  target.parts.push_back(std::move(first));
  while (SkipOperator(",")) {
    if (current().kind != TokenKind::kName && !current().IsOperator("(")) break;
    if (current().IsName("in")) break;
    target.parts.push_back(ParseTargetPart(with_namespace));
  }
  return target;
}

}  // namespace quire::runner::jinja
