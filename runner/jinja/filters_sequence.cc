
#include <algorithm>
#include <string_view>

#include "runner/jinja/arithmetic.h"
#include "runner/jinja/filter_tables.h"
#include "runner/jinja/sequence.h"
#include "runner/jinja/show.h"
#include "runner/jinja/text_ops.h"

namespace quire::runner::jinja {
namespace {

Value Nothing(Runtime& runtime, std::string_view message) {
  return Value(Undefined{runtime.MakeString(message).text_ref(), Undefined::Why::kHint});
}

Value JoinFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("join", arguments, {"d", "attribute"});
  const Value separator = bound[0] == nullptr ? runtime.MakeString("") : SoftStr(runtime, *bound[0]);
  // With autoescaping off Jinja joins plain strings.
  TextBuilder plain = runtime.NewText();
  plain.Append(separator.as_text());
  const Value glue(std::move(plain).Finish());
  const auto items = Iterate(runtime, self);
  if (bound[1] == nullptr || bound[1]->is_none()) return Join(runtime, glue, *items);
  std::vector<Value> parts;
  for (const Value& item : items->items) parts.push_back(GetPath(runtime, item, *bound[1]));
  return Join(runtime, glue, runtime.MakeList(std::move(parts)).as_list());
}

Value FirstFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("first", arguments, {});
  if (self.is_string() && self.as_text().size() != 0) return GetElement(runtime, self, Value(int64_t{0}));
  if (self.type() == Type::kGenerator) {
    const List& list = self.as_list();
    if (list.consumed < list.items.size()) return list.items[list.consumed++];
    return Nothing(runtime, "No first item, sequence was empty.");
  }
  const auto items = Iterate(runtime, self);
  if (items->items.empty()) return Nothing(runtime, "No first item, sequence was empty.");
  return items->items.front();
}

Value LastFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("last", arguments, {});
  if (self.type() == Type::kGenerator) Raise("'generator' object is not reversible");
  if (self.is_string() && self.as_text().size() != 0) return GetElement(runtime, self, Value(int64_t{-1}));
  const auto items = Iterate(runtime, self);
  if (items->items.empty()) return Nothing(runtime, "No last item, sequence was empty.");
  return items->items.back();
}

Value ListFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("list", arguments, {});
  if (self.type() == Type::kList) return self;
  return runtime.MakeList(Iterate(runtime, self)->items);
}

Value ItemsFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("items", arguments, {});
  if (self.is_undefined()) return runtime.MakeList({}, Type::kGenerator);
  if (!self.is_dict()) Raise("Can only get item pairs from a mapping.");
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_dict().entries()) {
    items.push_back(runtime.MakeList({key, value}, Type::kTuple));
  }
  return runtime.MakeList(std::move(items), Type::kGenerator);
}

Value ReverseFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("reverse", arguments, {});
  if (self.is_string()) return GetSlice(runtime, self, Value(), Value(), Value(int64_t{-1}));
  std::vector<Value> items = Iterate(runtime, self)->items;
  std::reverse(items.begin(), items.end());
  return runtime.MakeList(std::move(items), self.type() == Type::kGenerator ? Type::kList : Type::kGenerator);
}

Value SumFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("sum", arguments, {"attribute", "start"});
  Value sum = bound[1] == nullptr ? Value(int64_t{0}) : *bound[1];
  if (sum.is_string()) Raise("sum() can't sum strings [use ''.join(seq) instead]");
  const bool by_attribute = bound[0] != nullptr && !bound[0]->is_none();
  const auto items = Iterate(runtime, self);
  for (const Value& item : items->items) {
    runtime.budget().Step();
    sum = Apply(runtime, BinaryOp::kAdd, sum, by_attribute ? GetPath(runtime, item, *bound[0]) : item);
  }
  return sum;
}

constexpr NamedFilter kSequenceFilters[] = {
    {"join", JoinFilter},   {"first", FirstFilter},     {"last", LastFilter}, {"list", ListFilter},
    {"items", ItemsFilter}, {"reverse", ReverseFilter}, {"sum", SumFilter},
};

}  // namespace

std::span<const NamedFilter> SequenceFilters() { return kSequenceFilters; }

}  // namespace quire::runner::jinja
