// The tests behind `is`.

#include <algorithm>
#include <iterator>
#include <string_view>

#include "runner/jinja/arithmetic.h"
#include "runner/jinja/builtins.h"
#include "runner/jinja/compare.h"
#include "runner/jinja/sequence.h"

namespace quire::runner::jinja {
namespace {

using Arguments = const CallArguments&;

template <Kind kind>
bool IsKind(Runtime&, const Value& self, Arguments arguments) {
  const BoundArguments bound("test", arguments, {});
  return self.kind() == kind;
}

bool IsDefined(Runtime&, const Value& self, Arguments arguments) {
  const BoundArguments bound("defined", arguments, {});
  return !self.is_undefined();
}

template <bool value>
bool IsTheBool(Runtime&, const Value& self, Arguments arguments) {
  const BoundArguments bound("true", arguments, {});
  return self.kind() == Kind::kBool && self.as_bool() == value;
}

bool IsNumber(Runtime&, const Value& self, Arguments arguments) {
  const BoundArguments bound("number", arguments, {});
  return self.is_number();
}

bool IsIterable(Runtime&, const Value& self, Arguments arguments) {
  const BoundArguments bound("iterable", arguments, {});
  return self.is_string() || self.is_list() || self.is_dict() || self.is_undefined() ||
         self.type() == Type::kLoop;
}

// Has a length and takes subscripts.
bool IsSequence(Runtime&, const Value& self, Arguments arguments) {
  const BoundArguments bound("sequence", arguments, {});
  const Type type = self.type();
  return self.is_string() || self.is_dict() || self.is_undefined() || type == Type::kList ||
         type == Type::kRange || IsTuple(self);
}

bool IsCallable(Runtime&, const Value& self, Arguments arguments) {
  const BoundArguments bound("callable", arguments, {});
  return (self.is_object() && self.as_object().callable()) || self.is_undefined();
}

bool IsSameAs(Runtime&, const Value& self, Arguments arguments) {
  const BoundArguments bound("sameas", arguments, {"other"}, 1);
  return Identical(self, *bound[0]);
}

bool Divides(Runtime& runtime, const Value& number, const Value& by) {
  return Equal(runtime, Apply(runtime, BinaryOp::kModulo, number, by), Value(int64_t{0}));
}

bool IsDivisibleBy(Runtime& runtime, const Value& self, Arguments arguments) {
  const BoundArguments bound("divisibleby", arguments, {"num"}, 1);
  return Divides(runtime, self, *bound[0]);
}

bool IsEven(Runtime& runtime, const Value& self, Arguments arguments) {
  const BoundArguments bound("even", arguments, {});
  return Divides(runtime, self, Value(int64_t{2}));
}

bool IsOdd(Runtime& runtime, const Value& self, Arguments arguments) {
  const BoundArguments bound("odd", arguments, {});
  return Equal(runtime, Apply(runtime, BinaryOp::kModulo, self, Value(int64_t{2})), Value(int64_t{1}));
}

template <bool equal>
bool IsEqual(Runtime& runtime, const Value& self, Arguments arguments) {
  const BoundArguments bound("eq", arguments, {"other"}, 1);
  return Equal(runtime, self, *bound[0]) == equal;
}

bool IsLess(Runtime& runtime, const Value& self, Arguments arguments) {
  const BoundArguments bound("lt", arguments, {"other"}, 1);
  return std::is_lt(Order(runtime, self, *bound[0], "<"));
}
bool IsLessEqual(Runtime& runtime, const Value& self, Arguments arguments) {
  const BoundArguments bound("le", arguments, {"other"}, 1);
  return std::is_lteq(Order(runtime, self, *bound[0], "<="));
}
bool IsGreater(Runtime& runtime, const Value& self, Arguments arguments) {
  const BoundArguments bound("gt", arguments, {"other"}, 1);
  return std::is_gt(Order(runtime, self, *bound[0], ">"));
}
bool IsGreaterEqual(Runtime& runtime, const Value& self, Arguments arguments) {
  const BoundArguments bound("ge", arguments, {"other"}, 1);
  return std::is_gteq(Order(runtime, self, *bound[0], ">="));
}

bool IsIn(Runtime& runtime, const Value& self, Arguments arguments) {
  const BoundArguments bound("in", arguments, {"seq"}, 1);
  return Contains(runtime, *bound[0], self);
}

struct NamedTest {
  std::string_view name;
  Test test;
};

constexpr NamedTest kTests[] = {
    {"defined", IsDefined},
    {"undefined", IsKind<Kind::kUndefined>},
    {"none", IsKind<Kind::kNone>},
    {"boolean", IsKind<Kind::kBool>},
    {"integer", IsKind<Kind::kInt>},
    {"float", IsKind<Kind::kDouble>},
    {"string", IsKind<Kind::kString>},
    {"mapping", IsKind<Kind::kDict>},
    {"true", IsTheBool<true>},
    {"false", IsTheBool<false>},
    {"number", IsNumber},
    {"iterable", IsIterable},
    {"sequence", IsSequence},
    {"callable", IsCallable},
    {"sameas", IsSameAs},
    {"divisibleby", IsDivisibleBy},
    {"even", IsEven},
    {"odd", IsOdd},
    {"eq", IsEqual<true>},
    {"equalto", IsEqual<true>},
    {"==", IsEqual<true>},
    {"ne", IsEqual<false>},
    {"!=", IsEqual<false>},
    {"lt", IsLess},
    {"lessthan", IsLess},
    {"<", IsLess},
    {"le", IsLessEqual},
    {"<=", IsLessEqual},
    {"gt", IsGreater},
    {"greaterthan", IsGreater},
    {">", IsGreater},
    {"ge", IsGreaterEqual},
    {">=", IsGreaterEqual},
    {"in", IsIn},
};

}  // namespace

Test FindTest(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                   [name](const NamedTest& entry) { return entry.name == name; });
  return found == std::end(kTests) ? nullptr : found->test;
}

}  // namespace quire::runner::jinja
