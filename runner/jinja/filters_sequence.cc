
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

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

// Lists of `linecount` items; the last one filled up where there is something to fill it with.
Value BatchFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t count = bound.Int(0, 1);
  if (count < 1) Raise("batch: linecount must be at least 1");
  std::vector<Value> batches, batch;
  const auto end_batch = [&] { batches.push_back(runtime.MakeList(std::exchange(batch, {}))); };
  const auto items = Iterate(runtime, self);
  for (const Value& item : items->items) {
    runtime.budget().Step();
    batch.push_back(item);
    if (std::ssize(batch) == count) end_batch();
  }
  if (batch.empty()) return runtime.MakeList(std::move(batches), Type::kGenerator);
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    const auto missing = static_cast<uint64_t>(count - std::ssize(batch));
    if (count > runtime.limits().range_max) Raise("batch: linecount is too large");
    runtime.budget().Step(missing);
    batch.insert(batch.end(), missing, *bound[1]);
  }
  end_batch();
  return runtime.MakeList(std::move(batches), Type::kGenerator);
}

// `slices` lists; the first ones are longer where the items do not divide.
Value SliceFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("slice", arguments, {"slices", "fill_with"}, 1);
  const int64_t count = bound.Int(0, 1);
  if (count < 1 || count > runtime.limits().range_max) Raise("slice: the number of slices is out of range");
  const auto items = Iterate(runtime, self);
  const auto length = std::ssize(items->items);
  std::vector<Value> slices;
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    runtime.budget().Step();
    const int64_t size = length / count + (i < length % count ? 1 : 0);
    std::vector<Value> slice(items->items.begin() + at, items->items.begin() + at + size);
    at += size;
    if (bound[1] != nullptr && i >= length % count && length % count != 0) slice.push_back(*bound[1]);
    slices.push_back(runtime.MakeList(std::move(slice)));
  }
  return runtime.MakeList(std::move(slices), Type::kGenerator);
}

constexpr NamedFilter kSequenceFilters[] = {
    {"batch", BatchFilter}, {"slice", SliceFilter},     {"join", JoinFilter},
    {"first", FirstFilter}, {"last", LastFilter},       {"list", ListFilter},
    {"items", ItemsFilter}, {"reverse", ReverseFilter}, {"sum", SumFilter},
};

}  // namespace

std::span<const NamedFilter> SequenceFilters() { return kSequenceFilters; }

}  // namespace quire::runner::jinja
