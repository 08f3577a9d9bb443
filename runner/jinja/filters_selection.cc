// map, select, reject, selectattr, rejectattr: a filter or test applied to each item.
#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "runner/jinja/compare.h"
#include "runner/jinja/filter_tables.h"
#include "runner/jinja/sequence.h"

namespace quire::runner::jinja {
namespace {

const Value* Named(const CallArguments& arguments, std::string_view name) {
  for (const auto& [key, value] : arguments.named) {
    if (key->bytes() == name) return &value;
  }
  return nullptr;
}

// The arguments after the first `count` positional ones.
CallArguments Rest(const CallArguments& arguments, size_t count) {
  CallArguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                         arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

Value MapAttribute(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const Value* attribute = Named(arguments, "attribute");
  const Value* fallback = Named(arguments, "default");
  for (const auto& [name, value] : arguments.named) {
    if (&value != attribute && &value != fallback) {
      Raise(fmt::format("Unexpected keyword argument '{}'", name->bytes()));
    }
  }
  if (attribute == nullptr) Raise("map requires a filter argument");
  std::vector<Value> mapped;
  const auto items = Iterate(runtime, self);
  for (const Value& item : items->items) {
    Value value = GetPath(runtime, item, *attribute);
    if (fallback != nullptr && value.is_undefined()) value = *fallback;
    mapped.push_back(std::move(value));
  }
  return runtime.MakeList(std::move(mapped), Type::kGenerator);
}

// Like Jinja, all of these take anything false, None too, for an empty sequence.
Value MapFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  if (!Truthy(self)) return runtime.MakeList({}, Type::kGenerator);
  if (arguments.positional.empty()) return MapAttribute(runtime, self, arguments);
  const Value& name = arguments.positional[0];
  const Filter filter = name.is_string() ? FindFilter(name.as_view()) : nullptr;
  if (filter == nullptr) Raise(fmt::format("No filter named '{}'.", name.is_string() ? name.as_view() : "?"));
  const CallArguments rest = Rest(arguments, 1);
  const DepthGuard guard(runtime.budget());
  std::vector<Value> mapped;
  const auto items = Iterate(runtime, self);
  for (const Value& item : items->items) {
    runtime.budget().Step();
    mapped.push_back(filter(runtime, item, rest));
  }
  return runtime.MakeList(std::move(mapped), Type::kGenerator);
}

template <bool keeps, bool by_attribute>
Value SelectFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  if (!Truthy(self)) return runtime.MakeList({}, Type::kGenerator);
  constexpr size_t kTestAt = by_attribute ? 1 : 0;
  if (arguments.positional.size() < kTestAt) Raise("Missing parameter for attribute name");
  Test test = nullptr;
  CallArguments rest;
  if (arguments.positional.size() > kTestAt) {
    const Value& name = arguments.positional[kTestAt];
    test = name.is_string() ? FindTest(name.as_view()) : nullptr;
    if (test == nullptr) Raise(fmt::format("No test named '{}'.", name.is_string() ? name.as_view() : "?"));
    rest = Rest(arguments, kTestAt + 1);
  }
  std::vector<Value> kept;
  const auto items = Iterate(runtime, self);
  for (const Value& item : items->items) {
    runtime.budget().Step();
    const Value tested = by_attribute ? GetPath(runtime, item, arguments.positional[0]) : item;
    const bool passes = test == nullptr ? Truthy(tested) : test(runtime, tested, rest);
    if (passes == keeps) kept.push_back(item);
  }
  return runtime.MakeList(std::move(kept), Type::kGenerator);
}

constexpr NamedFilter kSelectionFilters[] = {
    {"map", MapFilter},
    {"select", SelectFilter<true, false>},
    {"reject", SelectFilter<false, false>},
    {"selectattr", SelectFilter<true, true>},
    {"rejectattr", SelectFilter<false, true>},
};

}  // namespace

std::span<const NamedFilter> SelectionFilters() { return kSelectionFilters; }

}  // namespace quire::runner::jinja
