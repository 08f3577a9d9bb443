// Expressions, loosest operator first.
#include <algorithm>
#include <utility>

#include "runner/jinja/parser.h"

namespace quire::runner::jinja {
ExprPtr Parser::ParseTuple(bool with_condition, bool parenthesized) {
  const int line = current().line;
  auto tuple = std::make_unique<SequenceExpr>(line);
  tuple->tuple = true;
  int deepest = 0;
  bool comma = false;
  while (!AtTupleEnd() && !(comma && !with_condition && current().IsName("recursive"))) {
    tuple->items.push_back(with_condition ? ParseExpression() : ParseOr());
    deepest = std::max(deepest, DepthOf(tuple->items.back()));
    if (!SkipOperator(",")) break;
    comma = true;
  }
  if (!comma) {
    if (!tuple->items.empty()) return std::move(tuple->items.front());
    if (!parenthesized) FailUnexpected();
  }
  return Finish(std::move(tuple), deepest);
}

ExprPtr Parser::ParseCondition() {
  const Nested nested(*this);
  ExprPtr value = ParseOr();
  while (current().IsName("if")) {
    auto node = std::make_unique<ConditionExpr>(current().line);
    Skip();
    node->then = std::move(value);
    node->condition = ParseOr();
    if (SkipName("else")) node->otherwise = ParseCondition();
    const int deepest = std::max({DepthOf(node->then), DepthOf(node->condition), DepthOf(node->otherwise)});
    value = Finish(std::move(node), deepest);
  }
  return value;
}

ExprPtr Parser::ParseOr() {
  ExprPtr first = ParseAnd();
  if (!current().IsName("or")) return first;
  auto node = std::make_unique<LogicExpr>(current().line);
  node->all = false;
  int deepest = DepthOf(first);
  node->operands.push_back(std::move(first));
  while (SkipName("or")) {
    node->operands.push_back(ParseAnd());
    deepest = std::max(deepest, DepthOf(node->operands.back()));
  }
  return Finish(std::move(node), deepest);
}

ExprPtr Parser::ParseAnd() {
  ExprPtr first = ParseNot();
  if (!current().IsName("and")) return first;
  auto node = std::make_unique<LogicExpr>(current().line);
  int deepest = DepthOf(first);
  node->operands.push_back(std::move(first));
  while (SkipName("and")) {
    node->operands.push_back(ParseNot());
    deepest = std::max(deepest, DepthOf(node->operands.back()));
  }
  return Finish(std::move(node), deepest);
}

ExprPtr Parser::ParseNot() {
  if (!current().IsName("not")) return ParseCompare();
  const Nested nested(*this);
  auto node = std::make_unique<UnaryExpr>(current().line);
  Skip();
  node->operand = ParseNot();
  const int deepest = DepthOf(node->operand);
  return Finish(std::move(node), deepest);
}

bool Parser::ConsumeCompareOperator(CompareOp& op) {
  static constexpr std::pair<std::string_view, CompareOp> kSigns[] = {
      {"==", CompareOp::kEqual},     {"!=", CompareOp::kNotEqual}, {"<", CompareOp::kLess},
      {"<=", CompareOp::kLessEqual}, {">", CompareOp::kGreater},   {">=", CompareOp::kGreaterEqual},
  };
  for (const auto& [sign, meaning] : kSigns) {
    if (!SkipOperator(sign)) continue;
    op = meaning;
    return true;
  }
  if (SkipName("in")) {
    op = CompareOp::kIn;
    return true;
  }
  if (current().IsName("not") && following().IsName("in")) {
    Skip();
    Skip();
    op = CompareOp::kNotIn;
    return true;
  }
  return false;
}

ExprPtr Parser::ParseCompare() {
  const int line = current().line;
  ExprPtr first = ParseSum();
  CompareOp op{};
  if (!ConsumeCompareOperator(op)) return first;
  auto node = std::make_unique<CompareExpr>(line);
  int deepest = DepthOf(first);
  node->first = std::move(first);
  do {
    node->rest.emplace_back(op, ParseSum());
    deepest = std::max(deepest, DepthOf(node->rest.back().second));
  } while (ConsumeCompareOperator(op));
  return Finish(std::move(node), deepest);
}

ExprPtr Parser::Binary(BinaryOp op, ExprPtr left, ExprPtr right, int line) const {
  auto node = std::make_unique<BinaryExpr>(line);
  const int deepest = std::max(DepthOf(left), DepthOf(right));
  node->op = op;
  node->left = std::move(left);
  node->right = std::move(right);
  return Finish(std::move(node), deepest);
}

ExprPtr Parser::ParseSum() {
  ExprPtr left = ParseConcat();
  while (current().IsOperator("+") || current().IsOperator("-")) {
    const int line = current().line;
    const BinaryOp op = current().IsOperator("+") ? BinaryOp::kAdd : BinaryOp::kSubtract;
    Skip();
    left = Binary(op, std::move(left), ParseConcat(), line);
  }
  return left;
}

ExprPtr Parser::ParseConcat() {
  ExprPtr first = ParseProduct();
  if (!current().IsOperator("~")) return first;
  auto node = std::make_unique<ConcatExpr>(current().line);
  int deepest = DepthOf(first);
  node->operands.push_back(std::move(first));
  while (SkipOperator("~")) {
    node->operands.push_back(ParseProduct());
    deepest = std::max(deepest, DepthOf(node->operands.back()));
  }
  return Finish(std::move(node), deepest);
}

ExprPtr Parser::ParseProduct() {
  static constexpr std::pair<std::string_view, BinaryOp> kSigns[] = {{"*", BinaryOp::kMultiply},
                                                                     {"/", BinaryOp::kDivide},
                                                                     {"//", BinaryOp::kFloorDivide},
                                                                     {"%", BinaryOp::kModulo}};
  ExprPtr left = ParsePower();
  while (true) {
    const auto* sign = std::find_if(std::begin(kSigns), std::end(kSigns), [this](const auto& candidate) {
      return current().IsOperator(candidate.first);
    });
    if (sign == std::end(kSigns)) return left;
    const int line = current().line;
    Skip();
    left = Binary(sign->second, std::move(left), ParsePower(), line);
  }
}

ExprPtr Parser::ParsePower() {
  ExprPtr left = ParseUnary(true);
  while (current().IsOperator("**")) {
    const int line = current().line;
    Skip();
    left = Binary(BinaryOp::kPower, std::move(left), ParseUnary(true), line);
  }
  return left;
}

ExprPtr Parser::ParseUnary(bool with_filter) {
  ExprPtr value;
  if (current().IsOperator("-") || current().IsOperator("+")) {
    const Nested nested(*this);
    auto node = std::make_unique<UnaryExpr>(current().line);
    node->op = current().IsOperator("-") ? UnaryOp::kMinus : UnaryOp::kPlus;
    Skip();
    node->operand = ParseUnary(false);
    const int deepest = DepthOf(node->operand);
    value = Finish(std::move(node), deepest);
  } else {
    value = ParsePrimary();
  }
  value = ParsePostfix(std::move(value));
  return with_filter ? ParseFilterChain(std::move(value)) : std::move(value);
}

ExprPtr Parser::ParsePrimary() {
  switch (current().kind) {
    case TokenKind::kName:
      return ParseNameOrConstant();
    case TokenKind::kString:
    case TokenKind::kInt:
    case TokenKind::kFloat:
      return ParseLiteral();
    default:
      break;
  }
  if (current().IsOperator("[")) return ParseList();
  if (current().IsOperator("{")) return ParseDict();
  if (!SkipOperator("(")) FailUnexpected();
  ExprPtr value = ParseTuple(true, true);
  ExpectOperator(")");
  return value;
}

ExprPtr Parser::ParseNameOrConstant() {
  const int line = current().line;
  const std::string name = ConsumeName();
  const bool yes = name == "true" || name == "True";
  if (yes || name == "false" || name == "False" || name == "none" || name == "None") {
    auto node = std::make_unique<ConstExpr>(line);
    if (name != "none" && name != "None") node->value = Value(yes);
    return node;
  }
  for (MacroDef* macro : macros_) {
    macro->reads_varargs |= name == "varargs";
    macro->reads_kwargs |= name == "kwargs";
    macro->reads_caller |= name == "caller";
  }
  auto node = std::make_unique<NameExpr>(line);
  node->symbol = Intern(name);
  return node;
}

ExprPtr Parser::ParseLiteral() {
  auto node = std::make_unique<ConstExpr>(current().line);
  if (current().kind == TokenKind::kInt) {
    node->value = Value(current().integer);
    Skip();
  } else if (current().kind == TokenKind::kFloat) {
    node->value = Value(current().number);
    Skip();
  } else {
    std::string text;
    for (; current().kind == TokenKind::kString; Skip()) text += current().text;
    node->value = Value::String(std::move(text));
  }
  return node;
}

ExprPtr Parser::ParseList() {
  auto node = std::make_unique<SequenceExpr>(current().line);
  ExpectOperator("[");
  int deepest = 0;
  while (!current().IsOperator("]")) {
    if (!node->items.empty()) ExpectOperator(",");
    if (current().IsOperator("]")) break;
    node->items.push_back(ParseExpression());
    deepest = std::max(deepest, DepthOf(node->items.back()));
  }
  Skip();
  return Finish(std::move(node), deepest);
}

ExprPtr Parser::ParseDict() {
  auto node = std::make_unique<DictExpr>(current().line);
  ExpectOperator("{");
  int deepest = 0;
  while (!current().IsOperator("}")) {
    if (!node->entries.empty()) ExpectOperator(",");
    if (current().IsOperator("}")) break;
    ExprPtr key = ParseExpression();
    ExpectOperator(":");
    ExprPtr value = ParseExpression();
    deepest = std::max({deepest, DepthOf(key), DepthOf(value)});
    node->entries.emplace_back(std::move(key), std::move(value));
  }
  Skip();
  return Finish(std::move(node), deepest);
}

}  // namespace quire::runner::jinja
