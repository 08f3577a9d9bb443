// Methods of strings that search, cut and join.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "runner/jinja/compare.h"
#include "runner/jinja/method_tables.h"
#include "runner/jinja/sequence.h"
#include "runner/jinja/show.h"
#include "runner/jinja/text_ops.h"

namespace quire::runner::jinja {
namespace {

// A parameter that is a string or None.
const Value* Chars(const BoundArguments& bound, size_t index) {
  if (bound[index] == nullptr || bound[index]->is_none()) return nullptr;
  return &bound.String(index);
}

template <Side side>
Value StripMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("strip", arguments, {"chars"});
  return Strip(runtime, self, Chars(bound, 0), side);
}

Value ReplaceMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("replace", arguments, {"old", "new", "count"}, 2);
  Value to = bound.String(1);
  if (self.as_text().markup()) {
    TextBuilder escaped = runtime.NewText();
    AppendEscaped(escaped, to);
    to = Value(std::move(escaped).Finish());
  }
  return Replace(runtime, self, bound.String(0), to, bound.Int(2, -1));
}

// [start, end) in bytes of the code point range the arguments name, as a slice would have it.
Trimmed SearchWindow(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  const std::string_view text = self.as_view();
  if (bound[1] == nullptr && bound[2] == nullptr) return {0, text.size()};
  const int64_t length = *Length(runtime, self);
  const auto clip = [&](size_t index, int64_t fallback) {
    if (bound[index] == nullptr || bound[index]->is_none()) return fallback;
    const int64_t at = bound.Int(index, fallback);
    return at < 0 ? std::max<int64_t>(at < -length ? 0 : at + length, 0) : at;
  };
  const int64_t start = clip(1, 0);
  const int64_t end = std::min(clip(2, length), length);
  if (start > end) return {1, 0};  // not even the empty string is found
  return {OffsetOfCodePoint(text, static_cast<size_t>(start)),
          OffsetOfCodePoint(text, static_cast<size_t>(end))};
}

// Searching backwards is quadratic at worst, and is charged as such.
size_t FindLast(Runtime& runtime, std::string_view text, std::string_view needle) {
  runtime.budget().StepBytes(text.size() + text.size() * std::min<size_t>(needle.size(), 1 << 20) / 16);
  return text.rfind(needle);
}

template <bool last, bool must_exist>
Value FindMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("find", arguments, {"sub", "start", "end"}, 1);
  const std::string_view needle = bound.String(0).as_view();
  const Trimmed window = SearchWindow(runtime, self, bound);
  size_t found = std::string_view::npos;
  if (window.begin <= window.end) {
    const std::string_view text = self.as_view().substr(window.begin, window.end - window.begin);
    runtime.budget().StepBytes(text.size());
    found = last ? FindLast(runtime, text, needle) : FindBytes(text, needle, 0);
  }
  if (found == std::string_view::npos) {
    if (must_exist) Raise("substring not found");
    return Value(int64_t{-1});
  }
  return Value(static_cast<int64_t>(CountCodePoints(self.as_view().substr(0, window.begin + found))));
}

Value CountMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("count", arguments, {"sub", "start", "end"}, 1);
  const std::string_view needle = bound.String(0).as_view();
  const Trimmed window = SearchWindow(runtime, self, bound);
  if (window.begin > window.end) return Value(int64_t{0});
  const std::string_view text = self.as_view().substr(window.begin, window.end - window.begin);
  runtime.budget().StepBytes(text.size());
  if (needle.empty()) return Value(static_cast<int64_t>(CountCodePoints(text)) + 1);
  int64_t count = 0;
  for (size_t at = FindBytes(text, needle, 0); at != std::string_view::npos;
       at = FindBytes(text, needle, at + needle.size())) {
    ++count;
  }
  return Value(count);
}

template <bool front>
Value AffixMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound(front ? "startswith" : "endswith", arguments, {"affix", "start", "end"}, 1);
  const Trimmed window = SearchWindow(runtime, self, bound);
  if (window.begin > window.end) return Value(false);
  const std::string_view text = self.as_view().substr(window.begin, window.end - window.begin);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string())
      Raise(fmt::format("first arg must be str or a tuple of str, not {}", TypeName(affix.type())));
    return front ? text.starts_with(affix.as_view()) : text.ends_with(affix.as_view());
  };
  RequireDefined(*bound[0]);
  if (!IsTuple(*bound[0])) return Value(matches(*bound[0]));
  const std::vector<Value>& affixes = bound[0]->as_list().items;
  runtime.budget().Step(affixes.size());
  return Value(std::any_of(affixes.begin(), affixes.end(), matches));
}

template <bool front>
Value RemoveAffixMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound(front ? "removeprefix" : "removesuffix", arguments, {"affix"}, 1);
  const std::string_view affix = bound.String(0).as_view();
  const std::string_view text = self.as_view();
  if (front && text.starts_with(affix)) return runtime.Slice(self, affix.size(), text.size());
  if (!front && text.ends_with(affix)) return runtime.Slice(self, 0, text.size() - affix.size());
  return self;
}

uint64_t SplitsAllowed(const BoundArguments& bound) {
  const int64_t splits = bound.Int(1, -1);
  return splits < 0 ? std::numeric_limits<uint64_t>::max() : static_cast<uint64_t>(splits);
}

std::vector<Value> SplitAtSpaces(Runtime& runtime, const Value& self, uint64_t splits) {
  const std::string_view text = self.as_view();
  std::vector<Value> parts;
  size_t at = 0;
  const auto skip = [&](bool spaces) {
    while (at < text.size() && IsSpace(CodePointAt(text, at).value) == spaces)
      at += CodePointAt(text, at).bytes;
  };
  for (skip(true); at < text.size(); skip(true)) {
    const size_t begin = at;
    if (parts.size() == splits) {
      parts.push_back(runtime.Slice(self, begin, text.size()));
      break;
    }
    skip(false);
    parts.push_back(runtime.Slice(self, begin, at));
  }
  return parts;
}

std::vector<Value> SplitAtSpacesBackwards(Runtime& runtime, const Value& self, uint64_t splits) {
  const std::string_view text = self.as_view();
  std::vector<Value> parts;
  size_t end = text.size();
  const auto skip = [&](bool spaces) {
    while (end > 0 && IsSpace(CodePointBefore(text, end).value) == spaces)
      end -= CodePointBefore(text, end).bytes;
  };
  for (skip(true); end > 0; skip(true)) {
    const size_t part_end = end;
    if (parts.size() == splits) {
      parts.push_back(runtime.Slice(self, 0, part_end));
      break;
    }
    skip(false);
    parts.push_back(runtime.Slice(self, end, part_end));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool backwards>
Value SplitMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("split", arguments, {"sep", "maxsplit"});
  const uint64_t splits = SplitsAllowed(bound);
  const std::string_view text = self.as_view();
  runtime.budget().StepBytes(text.size());
  const Value* separator = Chars(bound, 0);
  if (separator == nullptr) {
    return runtime.MakeList(backwards ? SplitAtSpacesBackwards(runtime, self, splits)
                                      : SplitAtSpaces(runtime, self, splits));
  }
  const std::string_view wanted = separator->as_view();
  if (wanted.empty()) Raise("empty separator");
  std::vector<Value> parts;
  size_t begin = 0;
  size_t end = text.size();
  while (parts.size() < splits) {
    const size_t found =
        backwards ? FindLast(runtime, text.substr(0, end), wanted) : FindBytes(text, wanted, begin);
    if (found == std::string_view::npos) break;
    if (backwards) {
      parts.push_back(runtime.Slice(self, found + wanted.size(), end));
      end = found;
    } else {
      parts.push_back(runtime.Slice(self, begin, found));
      begin = found + wanted.size();
    }
  }
  parts.push_back(runtime.Slice(self, begin, end));
  if (backwards) std::reverse(parts.begin(), parts.end());
  return runtime.MakeList(std::move(parts));
}

template <bool last>
Value PartitionMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("partition", arguments, {"sep"}, 1);
  const std::string_view text = self.as_view();
  const std::string_view wanted = bound.String(0).as_view();
  if (wanted.empty()) Raise("empty separator");
  runtime.budget().StepBytes(text.size());
  const size_t found = last ? FindLast(runtime, text, wanted) : FindBytes(text, wanted, 0);
  const Value empty = runtime.MakeString("");
  std::vector<Value> parts;
  if (found == std::string_view::npos) {
    parts = last ? std::vector<Value>{empty, empty, self} : std::vector<Value>{self, empty, empty};
  } else {
    parts = {runtime.Slice(self, 0, found), runtime.Slice(self, found, found + wanted.size()),
             runtime.Slice(self, found + wanted.size(), text.size())};
  }
  return runtime.MakeList(std::move(parts), Type::kTuple);
}

Value SplitLinesMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("splitlines", arguments, {"keepends"});
  return runtime.MakeList(SplitLines(runtime, self, bound.Truth(0, false)));
}

Value JoinMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("join", arguments, {"iterable"}, 1);
  const auto items = Iterate(runtime, *bound[0]);
  for (size_t i = 0; i < items->items.size() && !self.as_text().markup(); ++i) {
    RequireDefined(items->items[i]);
    if (items->items[i].is_string()) continue;
    Raise(fmt::format("sequence item {}: expected str instance, {} found", i,
                      TypeName(items->items[i].type())));
  }
  return Join(runtime, self, *items);
}

constexpr NamedMethod kStringMethods[] = {
    {"strip", StripMethod<Side::kBoth>},
    {"lstrip", StripMethod<Side::kLeft>},
    {"rstrip", StripMethod<Side::kRight>},
    {"replace", ReplaceMethod},
    {"find", FindMethod<false, false>},
    {"rfind", FindMethod<true, false>},
    {"index", FindMethod<false, true>},
    {"rindex", FindMethod<true, true>},
    {"count", CountMethod},
    {"startswith", AffixMethod<true>},
    {"endswith", AffixMethod<false>},
    {"removeprefix", RemoveAffixMethod<true>},
    {"removesuffix", RemoveAffixMethod<false>},
    {"split", SplitMethod<false>},
    {"rsplit", SplitMethod<true>},
    {"splitlines", SplitLinesMethod},
    {"partition", PartitionMethod<false>},
    {"rpartition", PartitionMethod<true>},
    {"join", JoinMethod},
};

}  // namespace

std::span<const NamedMethod> StringMethods() { return kStringMethods; }

}  // namespace quire::runner::jinja
