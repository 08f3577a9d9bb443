// Expressions.
#include <fmt/format.h>

#include "runner/jinja/arithmetic.h"
#include "runner/jinja/compare.h"
#include "runner/jinja/interpreter.h"
#include "runner/jinja/sequence.h"
#include "runner/jinja/show.h"

namespace quire::runner::jinja {

Value Interpreter::Evaluate(const Expr& expr) {
  runtime_.budget().Step();
  if (expr.kind == ExprKind::kConst) return static_cast<const ConstExpr&>(expr).value;
  if (expr.kind == ExprKind::kName) return Lookup(static_cast<const NameExpr&>(expr).symbol);
  const DepthGuard guard(runtime_.budget());
  switch (expr.kind) {
    case ExprKind::kAttribute:
      return EvaluateAttribute(static_cast<const AttributeExpr&>(expr));
    case ExprKind::kElement:
      return EvaluateElement(static_cast<const ElementExpr&>(expr));
    case ExprKind::kSlice:
      return EvaluateSlice(static_cast<const SliceExpr&>(expr));
    case ExprKind::kCall:
      return EvaluateCall(static_cast<const CallExpr&>(expr));
    case ExprKind::kFilter:
      return EvaluateFilter(static_cast<const FilterExpr&>(expr), nullptr);
    case ExprKind::kTest:
      return EvaluateTest(static_cast<const TestExpr&>(expr));
    case ExprKind::kUnary:
      return EvaluateUnary(static_cast<const UnaryExpr&>(expr));
    case ExprKind::kBinary:
      return EvaluateBinary(static_cast<const BinaryExpr&>(expr));
    case ExprKind::kLogic:
      return EvaluateLogic(static_cast<const LogicExpr&>(expr));
    case ExprKind::kConcat:
      return EvaluateConcat(static_cast<const ConcatExpr&>(expr));
    case ExprKind::kCompare:
      return EvaluateCompare(static_cast<const CompareExpr&>(expr));
    case ExprKind::kCondition:
      return EvaluateCondition(static_cast<const ConditionExpr&>(expr));
    case ExprKind::kSequence:
      return EvaluateSequence(static_cast<const SequenceExpr&>(expr));
    case ExprKind::kDict:
      return EvaluateDict(static_cast<const DictExpr&>(expr));
    case ExprKind::kConst:
    case ExprKind::kName:
      break;
  }
  return Value();
}

Value Interpreter::EvaluateAttribute(const AttributeExpr& expr) {
  const Value object = Evaluate(*expr.object);
  line_ = expr.line;
  return GetAttribute(runtime_, object, expr.name, expr.methods);
}

Value Interpreter::EvaluateElement(const ElementExpr& expr) {
  const Value object = Evaluate(*expr.object);
  const Value key = Evaluate(*expr.key);
  line_ = expr.line;
  return GetElement(runtime_, object, key);
}

Value Interpreter::EvaluateSlice(const SliceExpr& expr) {
  const Value object = Evaluate(*expr.object);
  const Value start = expr.start == nullptr ? Value() : Evaluate(*expr.start);
  const Value stop = expr.stop == nullptr ? Value() : Evaluate(*expr.stop);
  const Value step = expr.step == nullptr ? Value() : Evaluate(*expr.step);
  line_ = expr.line;
  return GetSlice(runtime_, object, start, stop, step);
}

Value Interpreter::EvaluateCall(const CallExpr& expr, const Value* caller) {
  if (ExtendsList(expr)) return Value();
  Value callee;
  if (expr.callee->kind == ExprKind::kAttribute) {
    // A method is called without first being made a value.
    const auto& attribute = static_cast<const AttributeExpr&>(*expr.callee);
    const Value object = Evaluate(*attribute.object);
    if (const Method method = MethodOf(object, attribute.methods); method != nullptr) {
      const CallArguments arguments = EvaluateArguments(expr.arguments);
      line_ = expr.line;
      return method(runtime_, object, arguments);
    }
    line_ = expr.line;
    callee = GetAttribute(runtime_, object, attribute.name, attribute.methods);
  } else {
    callee = Evaluate(*expr.callee);
  }
  CallArguments arguments = EvaluateArguments(expr.arguments);
  if (caller != nullptr) arguments.named.emplace_back(program_.symbols[program_.caller], *caller);
  line_ = expr.line;
  RequireDefined(callee);
  if (!callee.is_object() || !callee.as_object().callable()) {
    Raise(fmt::format("'{}' object is not callable", TypeName(callee.type())));
  }
  Value result = callee.as_object().Call(runtime_, arguments);
  line_ = expr.line;
  return result;
}

Value Interpreter::EvaluateFilter(const FilterExpr& expr, const Value* block_text) {
  Value operand;
  if (expr.operand == nullptr) {
    operand = *block_text;
  } else if (block_text != nullptr) {  // a block's chain is filters all the way
    operand = EvaluateFilter(static_cast<const FilterExpr&>(*expr.operand), block_text);
  } else {
    operand = Evaluate(*expr.operand);
  }
  const CallArguments arguments = EvaluateArguments(expr.arguments);
  line_ = expr.line;
  if (expr.filter == nullptr) Raise(fmt::format("No filter named '{}'.", expr.name->bytes()));
  return expr.filter(runtime_, operand, arguments);
}

Value Interpreter::EvaluateTest(const TestExpr& expr) {
  const Value operand = Evaluate(*expr.operand);
  const CallArguments arguments = EvaluateArguments(expr.arguments);
  line_ = expr.line;
  if (expr.test == nullptr) Raise(fmt::format("No test named '{}'.", expr.name->bytes()));
  return Value(expr.test(runtime_, operand, arguments) != expr.negated);
}

Value Interpreter::EvaluateUnary(const UnaryExpr& expr) {
  const Value operand = Evaluate(*expr.operand);
  line_ = expr.line;
  switch (expr.op) {
    case UnaryOp::kNot:
      return Value(!Truthy(operand));
    case UnaryOp::kMinus:
      return Negate(operand);
    case UnaryOp::kPlus:
      break;
  }
  return Plus(operand);
}

Value Interpreter::EvaluateBinary(const BinaryExpr& expr) {
  const Value left = Evaluate(*expr.left);
  const Value right = Evaluate(*expr.right);
  line_ = expr.line;
  return Apply(runtime_, expr.op, left, right);
}

Value Interpreter::EvaluateLogic(const LogicExpr& expr) {
  Value value;
  for (const ExprPtr& operand : expr.operands) {
    value = Evaluate(*operand);
    if (Truthy(value) != expr.all) break;
  }
  return value;
}

Value Interpreter::EvaluateConcat(const ConcatExpr& expr) {
  TextBuilder text = runtime_.NewText();
  for (const ExprPtr& operand : expr.operands) AppendStr(text, Evaluate(*operand));
  return Value(std::move(text).Finish());
}

bool Interpreter::Compare(CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::kEqual:
      return Equal(runtime_, left, right);
    case CompareOp::kNotEqual:
      return !Equal(runtime_, left, right);
    case CompareOp::kLess:
      return std::is_lt(Order(runtime_, left, right, "<"));
    case CompareOp::kLessEqual:
      return std::is_lteq(Order(runtime_, left, right, "<="));
    case CompareOp::kGreater:
      return std::is_gt(Order(runtime_, left, right, ">"));
    case CompareOp::kGreaterEqual:
      return std::is_gteq(Order(runtime_, left, right, ">="));
    case CompareOp::kIn:
      return Contains(runtime_, right, left);
    case CompareOp::kNotIn:
      break;
  }
  return !Contains(runtime_, right, left);
}

Value Interpreter::EvaluateCompare(const CompareExpr& expr) {
  Value left = Evaluate(*expr.first);
  for (const auto& [op, operand] : expr.rest) {
    Value right = Evaluate(*operand);
    line_ = expr.line;
    if (!Compare(op, left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::EvaluateCondition(const ConditionExpr& expr) {
  if (Truthy(Evaluate(*expr.condition))) return Evaluate(*expr.then);
  if (expr.otherwise != nullptr) return Evaluate(*expr.otherwise);
  return Value(
      Undefined{runtime_
                    .MakeString(fmt::format(
                        "the inline if-expression on line {} evaluated to false and no else section was "
                        "defined.",
                        expr.line))
                    .text_ref(),
                Undefined::Why::kHint});
}

Value Interpreter::EvaluateSequence(const SequenceExpr& expr) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) items.push_back(Evaluate(*item));
  line_ = expr.line;
  return runtime_.MakeList(std::move(items), expr.tuple ? Type::kTuple : Type::kList);
}

Value Interpreter::EvaluateDict(const DictExpr& expr) {
  std::vector<Value::Entry> entries;
  entries.reserve(expr.entries.size());
  for (const auto& [key, value] : expr.entries) {
    Value evaluated_key = Evaluate(*key);
    entries.emplace_back(std::move(evaluated_key), Evaluate(*value));
  }
  line_ = expr.line;
  return runtime_.MakeDict(std::move(entries));
}

CallArguments Interpreter::EvaluateArguments(const ArgumentExprs& exprs) {
  CallArguments arguments;
  arguments.positional.reserve(exprs.positional.size());
  for (const ExprPtr& expr : exprs.positional) arguments.positional.push_back(Evaluate(*expr));
  for (const auto& [name, expr] : exprs.named) arguments.named.emplace_back(name, Evaluate(*expr));
  if (exprs.spread_positional != nullptr) {
    const auto items = Iterate(runtime_, Evaluate(*exprs.spread_positional));
    arguments.positional.insert(arguments.positional.end(), items->items.begin(), items->items.end());
  }
  if (exprs.spread_named != nullptr) SpreadNamed(Evaluate(*exprs.spread_named), arguments);
  return arguments;
}

void Interpreter::SpreadNamed(const Value& mapping, CallArguments& arguments) {
  if (!mapping.is_dict())
    Raise(fmt::format("argument after ** must be a mapping, not {}", TypeName(mapping.type())));
  // The mapping's own keys differ.
  const size_t written = arguments.named.size();
  for (const auto& [key, value] : mapping.as_dict().entries()) {
    runtime_.budget().Step(1 + written / 16);
    if (!key.is_string()) Raise("keywords must be strings");
    for (size_t i = 0; i < written; ++i) {
      if (arguments.named[i].first->bytes() == key.as_view()) {
        Raise(fmt::format("got multiple values for keyword argument '{}'", key.as_view()));
      }
    }
    arguments.named.emplace_back(key.text_ref(), value);
  }
}

}  // namespace quire::runner::jinja
