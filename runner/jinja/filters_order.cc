// Filters that compare items: sort, dictsort, unique, min, max.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "runner/jinja/compare.h"
#include "runner/jinja/filter_tables.h"
#include "runner/jinja/sequence.h"
#include "runner/jinja/text_ops.h"

namespace quire::runner::jinja {
namespace {

Value FoldCase(Runtime& runtime, const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? ChangeCase(runtime, value, Case::kLower) : value;
}

bool IsGiven(const Value* value) { return value != nullptr && !value->is_none(); }

// The sort key of an item: itself, an attribute, or several ("a,b.c").
Value SortKey(Runtime& runtime, const Value& item, const Value* attribute, bool case_sensitive) {
  if (!IsGiven(attribute)) return FoldCase(runtime, item, case_sensitive);
  if (!attribute->is_string() || attribute->as_view().find(',') == std::string_view::npos) {
    return FoldCase(runtime, GetPath(runtime, item, *attribute), case_sensitive);
  }
  std::vector<Value> parts;
  std::string_view rest = attribute->as_view();
  while (true) {
    const size_t comma = rest.find(',');
    const Value path = runtime.MakeString(rest.substr(0, comma));
    parts.push_back(FoldCase(runtime, GetPath(runtime, item, path), case_sensitive));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return runtime.MakeList(std::move(parts));
}

struct Keyed {
  Value key;
  Value item;
};

std::vector<Keyed> WithKeys(Runtime& runtime, const Value& self, const Value* attribute,
                            bool case_sensitive) {
  std::vector<Keyed> keyed;
  const auto items = Iterate(runtime, self);
  for (const Value& item : items->items) {
    runtime.budget().Step();
    keyed.push_back({SortKey(runtime, item, attribute, case_sensitive), item});
  }
  return keyed;
}

void SortByKey(Runtime& runtime, std::vector<Keyed>& keyed, bool reverse) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? Less(runtime, b.key, a.key) : Less(runtime, a.key, b.key);
  });
}

Value SortFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Keyed> keyed = WithKeys(runtime, self, bound[2], bound.Truth(1, false));
  SortByKey(runtime, keyed, bound.Truth(0, false));
  std::vector<Value> sorted;
  sorted.reserve(keyed.size());
  for (Keyed& entry : keyed) sorted.push_back(std::move(entry.item));
  return runtime.MakeList(std::move(sorted));
}

Value DictSortFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  RequireDefined(self);
  if (!self.is_dict()) Raise(fmt::format("'{} object' has no attribute 'items'", TypeName(self.type())));
  const std::string_view by = bound[1] == nullptr ? "key" : bound.String(1).as_view();
  if (by != "key" && by != "value") Raise("You can only sort by either \"key\" or \"value\"");
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : self.as_dict().entries()) {
    keyed.push_back({FoldCase(runtime, by == "key" ? key : value, bound.Truth(0, false)),
                     runtime.MakeList({key, value}, Type::kTuple)});
  }
  SortByKey(runtime, keyed, bound.Truth(2, false));
  std::vector<Value> sorted;
  sorted.reserve(keyed.size());
  for (Keyed& entry : keyed) sorted.push_back(std::move(entry.item));
  return runtime.MakeList(std::move(sorted));
}

Value UniqueFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("unique", arguments, {"case_sensitive", "attribute"});
  std::vector<Value> seen;
  std::vector<Value> unique;
  for (Keyed& entry : WithKeys(runtime, self, bound[1], bound.Truth(0, false))) {
    const bool known = std::any_of(seen.begin(), seen.end(),
                                   [&](const Value& key) { return Equal(runtime, key, entry.key); });
    if (known) continue;
    seen.push_back(std::move(entry.key));
    unique.push_back(std::move(entry.item));
  }
  return runtime.MakeList(std::move(unique), Type::kGenerator);
}

template <bool greatest>
Value ExtremeFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound(greatest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  std::vector<Keyed> keyed = WithKeys(runtime, self, bound[1], bound.Truth(0, false));
  if (keyed.empty()) {
    return Value(Undefined{runtime.MakeString("No aggregated item, sequence was empty.").text_ref(),
                           Undefined::Why::kHint});
  }
  const Keyed* best = &keyed.front();
  for (const Keyed& entry : std::span(keyed).subspan(1)) {
    const bool better = greatest ? Less(runtime, best->key, entry.key) : Less(runtime, entry.key, best->key);
    if (better) best = &entry;
  }
  return best->item;
}

// (key, items) of every key, sorted by it. A key keeps the case it first came in.
Value GroupByFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  std::vector<Keyed> keyed;
  const auto items = Iterate(runtime, self);
  for (const Value& item : items->items) {
    runtime.budget().Step();
    Value key = GetPath(runtime, item, *bound[0]);
    if (key.is_undefined() && bound[1] != nullptr) key = *bound[1];
    keyed.push_back({key, item});
  }
  const auto fold = [&](const Value& key) { return FoldCase(runtime, key, bound.Truth(2, false)); };
  std::stable_sort(keyed.begin(), keyed.end(),
                   [&](const Keyed& a, const Keyed& b) { return Less(runtime, fold(a.key), fold(b.key)); });
  std::vector<Value> groups;
  for (size_t i = 0; i < keyed.size();) {
    std::vector<Value> group;
    const size_t first = i;
    while (i < keyed.size() && Equal(runtime, fold(keyed[i].key), fold(keyed[first].key))) {
      group.push_back(keyed[i++].item);
    }
    groups.push_back(runtime.MakeList({keyed[first].key, runtime.MakeList(std::move(group))}, Type::kTuple));
  }
  return runtime.MakeList(std::move(groups));
}

constexpr NamedFilter kOrderFilters[] = {
    {"groupby", GroupByFilter}, {"sort", SortFilter},          {"dictsort", DictSortFilter},
    {"unique", UniqueFilter},   {"min", ExtremeFilter<false>}, {"max", ExtremeFilter<true>},
};

}  // namespace

std::span<const NamedFilter> OrderFilters() { return kOrderFilters; }

}  // namespace quire::runner::jinja
