// The postfix parts of an operand: attributes, subscripts, calls, filters and tests.
#include <algorithm>
#include <utility>

#include "runner/jinja/parser.h"

namespace quire::runner::jinja {
ExprPtr Parser::ParsePostfix(ExprPtr operand) {
  while (true) {
    if (current().IsOperator(".")) {
      operand = ParseAttribute(std::move(operand));
    } else if (current().IsOperator("[")) {
      operand = ParseSubscript(std::move(operand));
    } else if (current().IsOperator("(")) {
      operand = ParseCall(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExprPtr Parser::ParseFilterChain(ExprPtr operand) {
  while (true) {
    if (current().IsOperator("|")) {
      operand = ParseFilter(std::move(operand));
    } else if (current().IsName("is")) {
      operand = ParseTest(std::move(operand));
    } else if (current().IsOperator("(")) {
      operand = ParseCall(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExprPtr Parser::ParseAttribute(ExprPtr object) {
  const int line = current().line;
  Skip();
  const int deepest = DepthOf(object);
  if (current().kind == TokenKind::kInt) {
    auto key = std::make_unique<ConstExpr>(line);
    key->value = Value(current().integer);
    Skip();
    auto node = std::make_unique<ElementExpr>(line);
    node->object = std::move(object);
    node->key = std::move(key);
    return Finish(std::move(node), deepest);
  }
  auto node = std::make_unique<AttributeExpr>(line);
  std::string name = ConsumeName();
  node->object = std::move(object);
  node->methods = FindMethods(name);
  node->name = MakeText(std::move(name));
  return Finish(std::move(node), deepest);
}

// One element between the brackets: a key, or a slice, which takes over the object.
ExprPtr Parser::ParseSubscriptPart(ExprPtr& object) {
  const int line = current().line;
  ExprPtr start = current().IsOperator(":") ? nullptr : ParseExpression();
  if (!current().IsOperator(":")) return start;
  if (object == nullptr) Fail("a slice among several subscripts is not supported");
  Skip();
  const auto at_end = [this] { return current().IsOperator("]") || current().IsOperator(","); };
  auto node = std::make_unique<SliceExpr>(line);
  node->object = std::move(object);
  node->start = std::move(start);
  if (!current().IsOperator(":") && !at_end()) node->stop = ParseExpression();
  if (SkipOperator(":") && !at_end()) node->step = ParseExpression();
  const int deepest =
      std::max({DepthOf(node->object), DepthOf(node->start), DepthOf(node->stop), DepthOf(node->step)});
  return Finish(std::move(node), deepest);
}

ExprPtr Parser::ParseSubscript(ExprPtr object) {
  const int line = current().line;
  ExpectOperator("[");
  if (current().IsOperator("]")) FailUnexpected();
  ExprPtr key = ParseSubscriptPart(object);
  if (object == nullptr) {  // a slice
    ExpectOperator("]");
    return key;
  }
  if (current().IsOperator(",")) {
    auto keys = std::make_unique<SequenceExpr>(line);
    keys->tuple = true;
    int deepest = DepthOf(key);
    keys->items.push_back(std::move(key));
    ExprPtr no_object;
    while (SkipOperator(",")) {
      keys->items.push_back(ParseSubscriptPart(no_object));
      deepest = std::max(deepest, DepthOf(keys->items.back()));
    }
    key = Finish(std::move(keys), deepest);
  }
  ExpectOperator("]");
  auto node = std::make_unique<ElementExpr>(line);
  const int deepest = std::max(DepthOf(object), DepthOf(key));
  node->object = std::move(object);
  node->key = std::move(key);
  return Finish(std::move(node), deepest);
}

int Parser::ParseArguments(ArgumentExprs& arguments) {
  ExpectOperator("(");
  int deepest = 0;
  bool first = true;
  const auto ensure = [this](bool valid) {
    if (!valid) Fail("invalid syntax for function call expression");
  };
  while (!current().IsOperator(")")) {
    if (!first) ExpectOperator(",");
    first = false;
    if (current().IsOperator(")")) break;
    if (SkipOperator("*")) {
      ensure(arguments.spread_positional == nullptr && arguments.spread_named == nullptr);
      arguments.spread_positional = ParseExpression();
      deepest = std::max(deepest, DepthOf(arguments.spread_positional));
    } else if (SkipOperator("**")) {
      ensure(arguments.spread_named == nullptr);
      arguments.spread_named = ParseExpression();
      deepest = std::max(deepest, DepthOf(arguments.spread_named));
    } else if (current().kind == TokenKind::kName && following().IsOperator("=")) {
      ensure(arguments.spread_named == nullptr);
      TextRef name = MakeText(ConsumeName());
      Skip();
      arguments.named.emplace_back(std::move(name), ParseExpression());
      deepest = std::max(deepest, DepthOf(arguments.named.back().second));
    } else {
      ensure(arguments.spread_positional == nullptr && arguments.spread_named == nullptr &&
             arguments.named.empty());
      arguments.positional.push_back(ParseExpression());
      deepest = std::max(deepest, DepthOf(arguments.positional.back()));
    }
  }
  Skip();
  return deepest;
}

ExprPtr Parser::ParseCall(ExprPtr callee) {
  auto node = std::make_unique<CallExpr>(current().line);
  const int deepest = std::max(DepthOf(callee), ParseArguments(node->arguments));
  node->callee = std::move(callee);
  return Finish(std::move(node), deepest);
}

ExprPtr Parser::ParseFilter(ExprPtr operand) {
  // A block's first filter has no operand and comes without a bar.
  bool inline_start = !current().IsOperator("|");
  while (inline_start || current().IsOperator("|")) {
    auto node = std::make_unique<FilterExpr>(current().line);
    if (!inline_start) Skip();
    inline_start = false;
    std::string name = ConsumeName();
    while (SkipOperator(".")) name += "." + ConsumeName();
    node->filter = FindFilter(name);
    node->name = MakeText(std::move(name));
    int deepest = DepthOf(operand);
    if (current().IsOperator("(")) deepest = std::max(deepest, ParseArguments(node->arguments));
    node->operand = std::move(operand);
    operand = Finish(std::move(node), deepest);
  }
  return operand;
}

// The one argument of a test that is written without parentheses: "x is divisibleby 3".
ExprPtr Parser::ParseTestOperand() {
  const Token& token = current();
  const bool starts = token.kind == TokenKind::kName || token.kind == TokenKind::kString ||
                      token.kind == TokenKind::kInt || token.kind == TokenKind::kFloat ||
                      token.IsOperator("[") || token.IsOperator("{");
  if (!starts || token.IsName("else") || token.IsName("or") || token.IsName("and")) return nullptr;
  if (token.IsName("is")) Fail("You cannot chain multiple tests with is");
  return ParsePostfix(ParsePrimary());
}

ExprPtr Parser::ParseTest(ExprPtr operand) {
  auto node = std::make_unique<TestExpr>(current().line);
  ExpectName("is");
  node->negated = SkipName("not");
  std::string name = ConsumeName();
  while (SkipOperator(".")) name += "." + ConsumeName();
  node->test = FindTest(name);
  node->name = MakeText(std::move(name));
  int deepest = DepthOf(operand);
  if (current().IsOperator("(")) {
    deepest = std::max(deepest, ParseArguments(node->arguments));
  } else if (ExprPtr argument = ParseTestOperand(); argument != nullptr) {
    deepest = std::max(deepest, DepthOf(argument));
    node->arguments.positional.push_back(std::move(argument));
  }
  node->operand = std::move(operand);
  return Finish(std::move(node), deepest);
}

}  // namespace quire::runner::jinja
