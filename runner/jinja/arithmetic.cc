#include "runner/jinja/arithmetic.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "runner/jinja/compare.h"
#include "runner/jinja/formatting.h"
#include "runner/jinja/show.h"

namespace quire::runner::jinja {
namespace {

const char* Sign(BinaryOp op) {
  static constexpr const char* kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSigns[static_cast<size_t>(op)];
}

[[noreturn]] void RaiseOverflow() { Raise("integer result is beyond 64 bits"); }
[[noreturn]] void RaiseZero() { Raise("division by zero"); }

int64_t FloorDivide(int64_t a, int64_t b) {
  if (b == 0) RaiseZero();
  if (b == -1) {
    if (a == std::numeric_limits<int64_t>::min()) RaiseOverflow();
    return -a;
  }
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t Modulo(int64_t a, int64_t b) {
  if (b == 0) RaiseZero();
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double Modulo(double a, double b) {
  if (b == 0) RaiseZero();
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double FloorDivide(double a, double b) {
  if (b == 0) RaiseZero();
  const double quotient = (a - Modulo(a, b)) / b;
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Value Power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) Raise("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  if (base == 0 || base == 1) return Value(exponent == 0 ? int64_t{1} : base);
  if (base == -1) return Value(exponent % 2 == 0 ? int64_t{1} : int64_t{-1});
  for (int64_t i = 0; i < exponent; ++i) {  // overflows within 63 rounds
    if (__builtin_mul_overflow(result, base, &result)) RaiseOverflow();
  }
  return Value(result);
}

Value ApplyToInts(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOp::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOp::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOp::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOp::kDivide:
      if (b == 0) RaiseZero();
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOp::kFloorDivide:
      result = FloorDivide(a, b);
      break;
    case BinaryOp::kModulo:
      result = Modulo(a, b);
      break;
    case BinaryOp::kPower:
      return Power(a, b);
  }
  if (overflow) RaiseOverflow();
  return Value(result);
}

Value ApplyToFloats(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value(a + b);
    case BinaryOp::kSubtract:
      return Value(a - b);
    case BinaryOp::kMultiply:
      return Value(a * b);
    case BinaryOp::kDivide:
      if (b == 0) RaiseZero();
      return Value(a / b);
    case BinaryOp::kFloorDivide:
      return Value(FloorDivide(a, b));
    case BinaryOp::kModulo:
      return Value(Modulo(a, b));
    case BinaryOp::kPower:
      break;
  }
  if (a == 0 && b < 0) Raise("0.0 cannot be raised to a negative power");
  if (a < 0 && b != std::floor(b)) Raise("a negative number cannot be raised to a fractional power");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) Raise("float result is out of range");
  return Value(result);
}

Value AddStrings(Runtime& runtime, const Value& left, const Value& right) {
  const bool markup = left.as_text().markup() || right.as_text().markup();
  TextBuilder out = runtime.NewText();
  if (markup) {
    AppendEscaped(out, left);
    AppendEscaped(out, right);
  } else {
    out.Append(left.as_text());
    out.Append(right.as_text());
  }
  return Value(std::move(out).Finish(markup));
}

Value AddLists(Runtime& runtime, const Value& left, const Value& right) {
  const std::vector<Value>& a = left.as_list().items;
  const std::vector<Value>& b = right.as_list().items;
  const Charge charge(runtime.budget(), (a.size() + b.size()) * sizeof(Value));
  std::vector<Value> items;
  items.reserve(a.size() + b.size());
  items.insert(items.end(), a.begin(), a.end());
  items.insert(items.end(), b.begin(), b.end());
  return runtime.MakeList(std::move(items), IsTuple(left) ? Type::kTuple : Type::kList);
}

// REQUIRES: `repeated` is a string, list or tuple.
Value Repeat(Runtime& runtime, const Value& repeated, int64_t times) {
  const bool empty = repeated.is_string() ? repeated.as_text().size() == 0 : repeated.as_list().items.empty();
  const size_t count = empty ? 0 : static_cast<size_t>(std::max<int64_t>(times, 0));
  const size_t unit = repeated.is_string() ? repeated.as_text().size() + 1
                                           : (repeated.as_list().items.size() + 1) * sizeof(Value);
  if (count > runtime.limits().memory_bytes_max / unit) {
    Raise(fmt::format("the template needs more than {} bytes of memory", runtime.limits().memory_bytes_max));
  }
  if (repeated.is_string()) {
    TextBuilder out = runtime.NewText();
    out.AppendRepeated(repeated.as_text(), count);
    return Value(std::move(out).Finish(repeated.as_text().markup()));
  }
  const std::vector<Value>& unit_items = repeated.as_list().items;
  const Charge charge(runtime.budget(), unit_items.size() * count * sizeof(Value));
  std::vector<Value> items;
  items.reserve(unit_items.size() * count);
  for (size_t i = 0; i < count; ++i) {
    runtime.budget().Step(unit_items.size());
    items.insert(items.end(), unit_items.begin(), unit_items.end());
  }
  return runtime.MakeList(std::move(items), IsTuple(repeated) ? Type::kTuple : Type::kList);
}

bool IsRepeatable(const Value& value) {
  return value.is_string() || value.type() == Type::kList || IsTuple(value);
}

[[noreturn]] void RaiseOperands(BinaryOp op, const Value& left, const Value& right) {
  if (op == BinaryOp::kAdd && (left.is_string() || left.is_list())) {
    Raise(fmt::format("can only concatenate {} (not \"{}\") to {}", TypeName(left.type()),
                      TypeName(right.type()), TypeName(left.type())));
  }
  Raise(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", Sign(op), TypeName(left.type()),
                    TypeName(right.type())));
}

}  // namespace

Value Apply(Runtime& runtime, BinaryOp op, const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) return ApplyToInts(op, left.as_int(), right.as_int());
  if (left.is_number() && right.is_number()) return ApplyToFloats(op, left.as_double(), right.as_double());
  RequireDefined(left);
  RequireDefined(right);
  if (op == BinaryOp::kAdd) {
    if (left.is_string() && right.is_string()) return AddStrings(runtime, left, right);
    const bool lists = left.type() == Type::kList && right.type() == Type::kList;
    if (lists || (IsTuple(left) && IsTuple(right))) return AddLists(runtime, left, right);
  }
  if (op == BinaryOp::kModulo && left.is_string()) return FormatPercent(runtime, left, right);
  if (op == BinaryOp::kMultiply) {
    if (IsRepeatable(left) && right.is_integral()) return Repeat(runtime, left, right.as_int());
    if (IsRepeatable(right) && left.is_integral()) return Repeat(runtime, right, left.as_int());
  }
  RaiseOperands(op, left, right);
}

Value Negate(const Value& value) {
  RequireDefined(value);
  if (value.is_integral()) return ApplyToInts(BinaryOp::kSubtract, 0, value.as_int());
  if (value.is_number()) return Value(-value.as_double());
  Raise(fmt::format("bad operand type for unary -: '{}'", TypeName(value.type())));
}

Value Plus(const Value& value) {
  RequireDefined(value);
  if (value.is_integral()) return Value(value.as_int());
  if (value.is_number()) return value;
  Raise(fmt::format("bad operand type for unary +: '{}'", TypeName(value.type())));
}

}  // namespace quire::runner::jinja
