// Methods of dicts and lists, and the look-up of all methods.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "runner/jinja/builtins.h"
#include "runner/jinja/compare.h"
#include "runner/jinja/method_tables.h"
#include "runner/jinja/sequence.h"

namespace quire::runner::jinja {
namespace {

Value DictGet(Runtime&, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("get", arguments, {"key", "default"}, 1);
  const Value* found = bound[0]->is_undefined() ? nullptr : self.as_dict().Find(*bound[0]);
  if (found != nullptr) return *found;
  return bound[1] == nullptr ? Value() : *bound[1];
}

Value DictKeys(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("keys", arguments, {});
  std::vector<Value> keys;
  for (const auto& [key, value] : self.as_dict().entries()) keys.push_back(key);
  return runtime.MakeList(std::move(keys), Type::kDictKeys);
}

Value DictValues(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("values", arguments, {});
  std::vector<Value> values;
  for (const auto& [key, value] : self.as_dict().entries()) values.push_back(value);
  return runtime.MakeList(std::move(values), Type::kDictValues);
}

Value DictItems(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("items", arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_dict().entries()) {
    items.push_back(runtime.MakeList({key, value}, Type::kTuple));
  }
  return runtime.MakeList(std::move(items), Type::kDictItems);
}

Value Copy(Runtime&, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("copy", arguments, {});
  if (!self.is_dict() && self.type() != Type::kList) {
    Raise(fmt::format("'{} object' has no attribute 'copy'", TypeName(self.type())));
  }
  return self;
}

Value ListIndex(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("index", arguments, {"value", "start", "stop"}, 1);
  const std::vector<Value>& items = self.as_list().items;
  const auto length = static_cast<int64_t>(items.size());
  const auto clip = [length](int64_t index) {
    return index < 0 ? (index < -length ? 0 : index + length) : index;
  };
  const int64_t stop = std::min(clip(bound.Int(2, length)), length);
  for (int64_t i = clip(bound.Int(1, 0)); i < stop; ++i) {
    if (Equal(runtime, items[static_cast<size_t>(i)], *bound[0])) return Value(i);
  }
  Raise("the value is not in the list");
}

Value ListCount(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("count", arguments, {"value"}, 1);
  const std::vector<Value>& items = self.as_list().items;
  return Value(static_cast<int64_t>(std::count_if(
      items.begin(), items.end(), [&](const Value& item) { return Equal(runtime, item, *bound[0]); })));
}

constexpr NamedMethod kDictTable[] = {
    {"get", DictGet}, {"keys", DictKeys}, {"values", DictValues}, {"items", DictItems}, {"copy", Copy},
};
constexpr NamedMethod kListTable[] = {{"index", ListIndex}, {"count", ListCount}, {"copy", Copy}};

constexpr std::string_view kDictChangers[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListChangers[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};

Method Look(std::span<const NamedMethod> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [name](const NamedMethod& entry) { return entry.name == name; });
  return found == table.end() ? nullptr : found->method;
}

template <size_t count>
bool IsAmong(const std::string_view (&names)[count], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

Methods FindMethods(std::string_view name) {
  Methods methods;
  methods.of_string = Look(StringMethods(), name);
  if (methods.of_string == nullptr) methods.of_string = Look(StringFormMethods(), name);
  methods.of_dict = Look(kDictTable, name);
  methods.of_list = Look(kListTable, name);
  methods.unsafe_dict = IsAmong(kDictChangers, name);
  methods.unsafe_list = IsAmong(kListChangers, name);
  return methods;
}

}  // namespace quire::runner::jinja
