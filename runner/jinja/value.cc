#include "runner/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <compare>
#include <numeric>

#include "runner/jinja/compare.h"

namespace quire::runner::jinja {
namespace {

constexpr size_t kScanEntriesMax = 8;

int DeepestOf(const std::vector<Value>& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  return deepest;
}

// Kinds that never compare equal to each other, in an arbitrary order; all numbers are one kind.
int KeyRank(const Value& key) {
  switch (key.kind()) {
    case Kind::kNone:
      return 0;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kDouble:
      return 1;
    case Kind::kString:
      return 2;
    default:
      Raise(fmt::format("unhashable type: '{}'", TypeName(key.type())));
  }
}

std::strong_ordering CompareKeys(const Value& a, const Value& b) {
  const int rank = KeyRank(a);
  if (const auto order = rank <=> KeyRank(b); std::is_neq(order)) return order;
  if (rank == 1) {
    const std::partial_ordering order = CompareNumbers(a, b);
    if (order == std::partial_ordering::less) return std::strong_ordering::less;
    if (order == std::partial_ordering::greater) return std::strong_ordering::greater;
    if (order == std::partial_ordering::equivalent) return std::strong_ordering::equal;
    return std::isnan(a.as_double()) <=> std::isnan(b.as_double());
  }
  if (rank == 2) return a.as_view() <=> b.as_view();
  return std::strong_ordering::equal;
}

}  // namespace

const char* TypeName(Type type) {
  static constexpr const char* kNames[] = {
      "NoneType",  "bool",      "int",       "float",       "str",        "Markup",    "list",
      "tuple",     "range",     "dict_keys", "dict_values", "dict_items", "generator", "dict",
      "Undefined", "Namespace", "Macro",     "LoopContext", "function",   "method",
  };
  return kNames[static_cast<size_t>(type)];
}

std::string Undefined::Message() const {
  const std::string_view what = name == nullptr ? std::string_view() : std::string_view(name->bytes());
  const std::string whose = owner == Type::kNone ? "None" : fmt::format("{} object", TypeName(owner));
  switch (why) {
    case Why::kName:
      return fmt::format("'{}' is undefined", what);
    case Why::kAttribute:
      return fmt::format("'{}' has no attribute '{}'", whose, what);
    case Why::kElement:
      return fmt::format("{} has no element {}", whose, what);
    case Why::kParameter:
      return fmt::format("parameter '{}' was not provided", what);
    case Why::kUnsafe:
      return fmt::format("access to attribute '{}' of '{}' object is unsafe.", what, TypeName(owner));
    case Why::kHint:
      break;
  }
  return std::string(what);
}

std::optional<Value> Object::Attribute(Runtime&, std::string_view) { return std::nullopt; }

Value Object::Call(Runtime&, const CallArguments&) {
  Raise(fmt::format("'{}' object is not callable", TypeName(type_)));
}

Value Value::MakeList(std::vector<Value> items) {
  auto list = std::make_shared<List>();
  list->depth = 1 + DeepestOf(items);
  list->items = std::move(items);
  return Value(std::shared_ptr<const List>(std::move(list)));
}

Value Value::MakeDict(std::vector<std::pair<std::string, Value>> entries) {
  std::vector<Entry> values;
  values.reserve(entries.size());
  for (auto& entry : entries) values.emplace_back(String(std::move(entry.first)), std::move(entry.second));
  return Value(std::make_shared<const Dict>(std::move(values), Charge()));
}

Type Value::type() const {
  switch (kind()) {
    case Kind::kNone:
      return Type::kNone;
    case Kind::kBool:
      return Type::kBool;
    case Kind::kInt:
      return Type::kInt;
    case Kind::kDouble:
      return Type::kFloat;
    case Kind::kString:
      return as_text().markup() ? Type::kMarkup : Type::kStr;
    case Kind::kList:
      return as_list().type;
    case Kind::kDict:
      return Type::kDict;
    case Kind::kObject:
      return as_object().type();
    case Kind::kUndefined:
      break;
  }
  return Type::kUndefined;
}

int Value::depth() const {
  switch (kind()) {
    case Kind::kList:
      return as_list().depth;
    case Kind::kDict:
      return as_dict().depth();
    case Kind::kObject:
      return as_object().depth();
    default:
      return 0;
  }
}

Dict::Dict(std::vector<Entry> entries, Charge charge)
    : entries_(std::move(entries)), charge_(std::move(charge)) {
  for (const Entry& entry : entries_) depth_ = std::max(depth_, 1 + entry.second.depth());
  std::vector<uint32_t> order(entries_.size());
  std::iota(order.begin(), order.end(), 0U);
  // Equal keys end up in insertion order, so the first of each run has the place and the last has the value.
  std::stable_sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
    CountWork(1);
    return std::is_lt(CompareKeys(entries_[a].first, entries_[b].first));
  });
  if (order.size() == 1) KeyRank(entries_[0].first);
  std::vector<bool> dropped;
  for (size_t i = 1, first = 0; i < order.size(); ++i) {
    if (std::is_neq(CompareKeys(entries_[order[first]].first, entries_[order[i]].first))) {
      first = i;
      continue;
    }
    dropped.resize(entries_.size());
    dropped[order[i]] = true;
    entries_[order[first]].second = entries_[order[i]].second;
  }
  if (!dropped.empty()) {
    std::vector<Entry> kept;
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (!dropped[i]) kept.push_back(std::move(entries_[i]));
    }
    *this = Dict(std::move(kept), std::move(charge_));
    return;
  }
  if (entries_.size() > kScanEntriesMax) sorted_ = std::move(order);
}

const Value* Dict::Find(const Value& key) const {
  if (key.is_string()) return Find(key.as_view());
  KeyRank(key);
  if (sorted_.empty()) {
    for (const Entry& entry : entries_) {
      if (std::is_eq(CompareKeys(entry.first, key))) return &entry.second;
    }
    return nullptr;
  }
  const auto found = std::partition_point(sorted_.begin(), sorted_.end(), [&](uint32_t index) {
    return std::is_lt(CompareKeys(entries_[index].first, key));
  });
  if (found == sorted_.end() || std::is_neq(CompareKeys(entries_[*found].first, key))) return nullptr;
  return &entries_[*found].second;
}

const Value* Dict::Find(std::string_view key) const {
  CountWork(1 + key.size() / 64);
  if (sorted_.empty()) {
    for (const Entry& entry : entries_) {
      if (entry.first.is_string() && entry.first.as_view() == key) return &entry.second;
    }
    return nullptr;
  }
  const auto found = std::partition_point(sorted_.begin(), sorted_.end(), [&](uint32_t index) {
    const Value& candidate = entries_[index].first;
    return !candidate.is_string() || candidate.as_view() < key;  // strings sort last
  });
  if (found == sorted_.end() || entries_[*found].first.as_view() != key) return nullptr;
  return &entries_[*found].second;
}

}  // namespace quire::runner::jinja
