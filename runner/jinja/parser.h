// Tokens to a Program, by Jinja's grammar. Recursive descent; nesting is bounded, so that hostile source ends
// in an error and not in a stack overflow.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runner/jinja/ast.h"
#include "runner/jinja/lexer.h"
#include "runner/jinja/limits.h"

namespace quire::runner::jinja {

// Throws SyntaxError. REQUIRES: source is valid UTF-8.
Program ParseProgram(std::string_view source, const Limits& limits);

class Parser {
 public:
  Parser(std::vector<Token> tokens, const Limits& limits);
  Program Parse();

 private:
  struct Nested;
  using EndTags = std::initializer_list<std::string_view>;

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void Skip() { at_ += at_ + 1 < tokens_.size() ? 1 : 0; }
  bool SkipOperator(std::string_view sign);
  bool SkipName(std::string_view name);
  void ExpectOperator(std::string_view sign);
  void ExpectName(std::string_view name);
  void Expect(TokenKind kind);
  std::string ConsumeName();
  [[noreturn]] void Fail(std::string message) const;
  [[noreturn]] void FailUnexpected() const;
  SymbolId Intern(std::string_view name);
  // Sets the node's depth from its operands' and fails when that is too deep.
  ExprPtr Finish(ExprPtr node, int deepest_operand) const;
  ExprPtr Binary(BinaryOp op, ExprPtr left, ExprPtr right, int line) const;

  // Statements (parser_statement.cc).
  Block ParseBody(EndTags end_tags);
  Block ParseTagBody(EndTags end_tags);  // after the tag's own end
  std::unique_ptr<Stmt> ParseStatement();
  std::unique_ptr<Stmt> ParseFor();
  std::unique_ptr<Stmt> ParseIf();
  std::unique_ptr<Stmt> ParseSet();
  std::unique_ptr<Stmt> ParseMacro();
  std::unique_ptr<Stmt> ParseFilterBlock();
  std::unique_ptr<Stmt> ParseGeneration();
  std::unique_ptr<Stmt> ParseWith();
  std::unique_ptr<Stmt> ParseBlock();
  std::unique_ptr<Stmt> ParseCallBlock();
  void ParseMacroBody(MacroDef& macro, const char* end);
  std::unique_ptr<Stmt> ParseJump(StmtKind kind);
  void ParsePrintTag(Block& block);
  void ParseSignature(MacroDef& macro);
  Target ParseTarget(bool with_namespace);
  Target ParseTargetPart(bool with_namespace);
  std::string ConsumeAssignableName();

  // Expressions (parser_expression.cc).
  ExprPtr ParseTuple(bool with_condition = true, bool parenthesized = false);
  ExprPtr ParseExpression() { return ParseCondition(); }
  ExprPtr ParseCondition();
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnary(bool with_filter);
  ExprPtr ParsePrimary();
  ExprPtr ParseLiteral();
  ExprPtr ParseNameOrConstant();
  ExprPtr ParseList();
  ExprPtr ParseDict();

  // The postfix parts of an operand (parser_postfix.cc).
  ExprPtr ParsePostfix(ExprPtr operand);
  ExprPtr ParseFilterChain(ExprPtr operand);
  ExprPtr ParseAttribute(ExprPtr object);
  ExprPtr ParseSubscript(ExprPtr object);
  ExprPtr ParseSubscriptPart(ExprPtr& object);
  ExprPtr ParseCall(ExprPtr callee);
  ExprPtr ParseFilter(ExprPtr operand);
  ExprPtr ParseTest(ExprPtr operand);
  int ParseArguments(ArgumentExprs& arguments);  // returns the deepest argument's depth
  ExprPtr ParseTestOperand();
  bool AtTupleEnd() const;
  bool ConsumeCompareOperator(CompareOp& op);

  std::vector<Token> tokens_;
  Limits limits_;
  size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;                  // open for loops within the innermost macro
  std::vector<MacroDef*> macros_;  // open definitions, outermost first
  std::unordered_map<std::string, SymbolId> symbol_ids_;
  Program program_;
};

// Counts nesting of expressions and blocks while it lives.
struct Parser::Nested {
  explicit Nested(Parser& parser) : parser_(parser) {
    if (++parser_.nesting_ > parser_.limits_.nesting_max) {
      --parser_.nesting_;
      parser_.Fail("nested too deeply");
    }
  }
  ~Nested() { --parser_.nesting_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  Parser& parser_;
};

}  // namespace quire::runner::jinja
