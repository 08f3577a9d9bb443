#include "runner/jinja/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "runner/jinja/unicode.h"

namespace quire::runner::jinja {
namespace {

std::partial_ordering CompareIntToDouble(int64_t integer, double number) {
  if (std::isnan(number)) return std::partial_ordering::unordered;
  if (number >= 0x1p63) return std::partial_ordering::less;
  if (number < -0x1p63) return std::partial_ordering::greater;
  const double whole = std::trunc(number);
  if (const auto order = integer <=> static_cast<int64_t>(whole); std::is_neq(order)) return order;
  return 0.0 <=> number - whole;
}

std::partial_ordering Flip(std::partial_ordering order) {
  if (std::is_lt(order)) return std::partial_ordering::greater;
  if (std::is_gt(order)) return std::partial_ordering::less;
  return order;
}

// Views of a dict's keys and items are sets to Python; ranges are sequences of their own kind.
bool ComparesByItems(Type type) {
  return type == Type::kList || type == Type::kRange || type == Type::kDictKeys || type == Type::kDictItems;
}

bool EqualLists(Runtime& runtime, const Value& a, const Value& b) {
  const List& left = a.as_list();
  const List& right = b.as_list();
  const bool tuples = IsTuple(a) && IsTuple(b);
  if (!tuples && (left.type != right.type || !ComparesByItems(left.type))) return &left == &right;
  if (left.items.size() != right.items.size()) return false;
  for (size_t i = 0; i < left.items.size(); ++i) {
    if (!Equal(runtime, left.items[i], right.items[i])) return false;
  }
  return true;
}

bool EqualDicts(Runtime& runtime, const Dict& left, const Dict& right) {
  if (left.entries().size() != right.entries().size()) return false;
  for (const auto& [key, value] : left.entries()) {
    const Value* other = right.Find(key);
    if (other == nullptr || !Equal(runtime, value, *other)) return false;
  }
  return true;
}

std::partial_ordering OrderLists(Runtime& runtime, const List& left, const List& right, const char* sign) {
  const size_t common = std::min(left.items.size(), right.items.size());
  for (size_t i = 0; i < common; ++i) {
    if (!Equal(runtime, left.items[i], right.items[i])) {
      return Order(runtime, left.items[i], right.items[i], sign);
    }
  }
  return left.items.size() <=> right.items.size();
}

}  // namespace

void RequireDefined(const Value& value) {
  if (value.is_undefined()) Raise(value.as_undefined().Message());
}

bool Truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kUndefined:
      return false;
    case Kind::kBool:
      return value.as_bool();
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kDouble:
      return value.as_double() != 0;
    case Kind::kString:
      return value.as_text().size() != 0;
    case Kind::kList:
      return value.as_list().type == Type::kGenerator || !value.as_list().items.empty();
    case Kind::kDict:
      return !value.as_dict().entries().empty();
    case Kind::kObject:
      break;
  }
  return true;
}

std::partial_ordering CompareNumbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_int() <=> b.as_int();
  if (a.is_integral()) return CompareIntToDouble(a.as_int(), b.as_double());
  if (b.is_integral()) return Flip(CompareIntToDouble(b.as_int(), a.as_double()));
  return a.as_double() <=> b.as_double();
}

bool Equal(Runtime& runtime, const Value& a, const Value& b) {
  runtime.budget().Step();
  if (a.is_number() && b.is_number()) return std::is_eq(CompareNumbers(a, b));
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString:
      if (a.as_text().size() != b.as_text().size()) return false;
      runtime.budget().StepBytes(a.as_text().size());
      return a.as_view() == b.as_view();
    case Kind::kList:
      return EqualLists(runtime, a, b);
    case Kind::kDict:
      return EqualDicts(runtime, a.as_dict(), b.as_dict());
    case Kind::kObject:
      return &a.as_object() == &b.as_object();
    default:
      return true;  // None, undefined
  }
}

std::partial_ordering Order(Runtime& runtime, const Value& a, const Value& b, const char* sign) {
  runtime.budget().Step();
  RequireDefined(a);
  RequireDefined(b);
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b);
  if (a.is_string() && b.is_string()) {
    runtime.budget().StepBytes(std::min(a.as_text().size(), b.as_text().size()));
    return a.as_view() <=> b.as_view();
  }
  const bool lists = a.type() == Type::kList && b.type() == Type::kList;
  if (lists || (IsTuple(a) && IsTuple(b))) {
    return OrderLists(runtime, a.as_list(), b.as_list(), sign);
  }
  Raise(fmt::format("'{}' not supported between instances of '{}' and '{}'", sign, TypeName(a.type()),
                    TypeName(b.type())));
}

bool Less(Runtime& runtime, const Value& a, const Value& b) { return std::is_lt(Order(runtime, a, b, "<")); }

bool Contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      RequireDefined(item);
      if (!item.is_string()) {
        Raise(fmt::format("'in <string>' requires string as left operand, not {}", TypeName(item.type())));
      }
      runtime.budget().StepBytes(container.as_text().size());
      return FindBytes(container.as_view(), item.as_view(), 0) != std::string_view::npos;
    case Kind::kDict:
      return !item.is_undefined() && container.as_dict().Find(item) != nullptr;
    case Kind::kList: {
      const List& list = container.as_list();
      for (; list.type == Type::kGenerator && list.consumed < list.items.size();) {
        if (Equal(runtime, list.items[list.consumed++], item)) return true;
      }
      if (list.type == Type::kGenerator) return false;
      return std::any_of(list.items.begin(), list.items.end(),
                         [&](const Value& candidate) { return Equal(runtime, candidate, item); });
    }
    default:
      Raise(fmt::format("argument of type '{}' is not iterable", TypeName(container.type())));
  }
}

bool Identical(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
    case Kind::kInt:
      return a.as_int() == b.as_int();
    case Kind::kDouble:
      return a.as_double() == b.as_double();
    case Kind::kString:
      CountWork(a.as_text().size() / 64);
      return a.as_view() == b.as_view();
    case Kind::kList:
      return &a.as_list() == &b.as_list();
    case Kind::kDict:
      return &a.as_dict() == &b.as_dict();
    case Kind::kObject:
      return &a.as_object() == &b.as_object();
    case Kind::kUndefined:
      break;
  }
  return false;
}

}  // namespace quire::runner::jinja
