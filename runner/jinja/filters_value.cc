// Filters of single values, and the look-up of all filters.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runner/jinja/compare.h"
#include "runner/jinja/filter_tables.h"
#include "runner/jinja/sequence.h"
#include "runner/jinja/show.h"
#include "runner/jinja/unicode.h"

namespace quire::runner::jinja {
namespace {

Value DefaultFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("default", arguments, {"default_value", "boolean"});
  if (!self.is_undefined() && (Truthy(self) || !bound.Truth(1, false))) return self;
  return bound[0] == nullptr ? runtime.MakeString("") : *bound[0];
}

int64_t WholeNumber(double value) {
  const double whole = std::trunc(value);
  if (!(whole >= -0x1p63 && whole < 0x1p63)) Raise("integer result is beyond 64 bits");
  return static_cast<int64_t>(whole);
}

Value IntFilter(Runtime&, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("int", arguments, {"default", "base"});
  RequireDefined(self);
  Value fallback = bound[0] == nullptr ? Value(int64_t{0}) : *bound[0];
  if (self.is_integral()) return Value(self.as_int());
  if (self.is_number()) {
    return std::isnan(self.as_double()) ? fallback : Value(WholeNumber(self.as_double()));
  }
  if (!self.is_string()) return fallback;
  const int64_t base = bound.Int(1, 10);
  if (base != 0 && (base < 2 || base > 36)) return fallback;
  if (const auto integer = ParseInt(self.as_view(), static_cast<int>(base))) return Value(*integer);
  const auto number = ParseFloat(self.as_view());
  if (!number || std::isnan(*number)) return fallback;
  return Value(WholeNumber(*number));
}

Value FloatFilter(Runtime&, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("float", arguments, {"default"});
  RequireDefined(self);
  if (self.is_number()) return Value(self.as_double());
  if (self.is_string()) {
    if (const auto number = ParseFloat(self.as_view())) return Value(*number);
  }
  return bound[0] == nullptr ? Value(0.0) : *bound[0];
}

Value AbsFilter(Runtime&, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("abs", arguments, {});
  RequireDefined(self);
  if (!self.is_number()) Raise(fmt::format("bad operand type for abs(): '{}'", TypeName(self.type())));
  if (!self.is_integral()) return Value(std::fabs(self.as_double()));
  if (self.as_int() == std::numeric_limits<int64_t>::min()) Raise("integer result is beyond 64 bits");
  return Value(std::abs(self.as_int()));
}

Value LengthFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("length", arguments, {});
  if (const auto length = Length(runtime, self)) return Value(*length);
  Raise(fmt::format("object of type '{}' has no len()", TypeName(self.type())));
}

Value ToJsonFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.Truth(0, false);
  style.sort_keys = bound.Truth(3, false);
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    style.item_separator = ",";
    if (bound[1]->is_string()) {
      style.indent = bound[1]->as_view();
    } else {
      const int64_t width = std::max<int64_t>(bound.Int(1, 0), 0);
      if (width > 1000) Raise("tojson: indent is too big");
      style.indent = std::string(static_cast<size_t>(width), ' ');
    }
  }
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    const auto separators = Iterate(runtime, *bound[2]);
    const std::vector<Value>& parts = separators->items;
    if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string()) {
      Raise("tojson: separators must be two strings");
    }
    style.item_separator = parts[0].as_view();
    style.key_separator = parts[1].as_view();
  }
  TextBuilder out = runtime.NewText();
  AppendJson(runtime, out, self, style);
  return Value(std::move(out).Finish());
}

// round() to even, on the decimal digits of the exact value, as Python has it.
double RoundFloat(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 330) return value;
  if (precision >= 0) return *ParseFloat(fmt::format("{:.{}f}", value, precision));
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::isinf(unit) ? std::copysign(0.0, value) : std::nearbyint(value / unit) * unit;
}

Value RoundInt(int64_t value, int64_t precision) {
  if (precision >= 0) return Value(value);
  if (precision < -18) return Value(int64_t{0});
  int64_t unit = 1;
  for (int64_t i = 0; i < -precision; ++i) unit *= 10;
  int64_t quotient = value / unit;
  const int64_t rest = std::abs(value % unit);
  const bool away = rest > unit / 2 || (rest == unit / 2 && quotient % 2 != 0);
  if (away) quotient += value < 0 ? -1 : 1;
  int64_t result = 0;
  if (__builtin_mul_overflow(quotient, unit, &result)) Raise("integer result is beyond 64 bits");
  return Value(result);
}

Value RoundFilter(Runtime&, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("round", arguments, {"precision", "method"});
  RequireDefined(self);
  if (!self.is_number()) Raise(fmt::format("round wants a number, not {}", TypeName(self.type())));
  const int64_t precision = bound.Int(0, 0);
  const std::string_view method = bound[1] == nullptr ? "common" : bound.String(1).as_view();
  if (method == "common") {
    if (self.is_integral()) return RoundInt(self.as_int(), precision);
    return Value(RoundFloat(self.as_double(), precision));
  }
  if (method != "ceil" && method != "floor") Raise("method must be common, ceil or floor");
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = self.as_double() * unit;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

constexpr NamedFilter kValueFilters[] = {
    {"default", DefaultFilter}, {"d", DefaultFilter},    {"int", IntFilter},
    {"float", FloatFilter},     {"abs", AbsFilter},      {"round", RoundFilter},
    {"length", LengthFilter},   {"count", LengthFilter}, {"tojson", ToJsonFilter},
};

}  // namespace

std::span<const NamedFilter> ValueFilters() { return kValueFilters; }

Filter FindFilter(std::string_view name) {
  for (const auto table :
       {TextFilters(), ValueFilters(), SequenceFilters(), SelectionFilters(), OrderFilters()}) {
    const auto found = std::find_if(table.begin(), table.end(),
                                    [name](const NamedFilter& entry) { return entry.name == name; });
    if (found != table.end()) return found->filter;
  }
  return nullptr;
}

}  // namespace quire::runner::jinja
