// Operations shared by Python's str methods and the string filters. `self` is a string throughout; trust of
// every byte is kept, and so is markup unless said otherwise.
#pragma once

#include <cstdint>

#include "runner/jinja/runtime.h"
#include "runner/jinja/unicode.h"
#include "runner/jinja/value.h"

namespace quire::runner::jinja {

enum class Side : uint8_t { kLeft, kRight, kBoth };

// Cuts code points of `chars` (null or None: spaces) off the ends.
Value Strip(Runtime& runtime, const Value& self, const Value* chars, Side side);
// At most `count` replacements; all when negative.
Value Replace(Runtime& runtime, const Value& self, const Value& from, const Value& to, int64_t count);
Value ChangeCase(Runtime& runtime, const Value& self, Case to);
Value Capitalize(Runtime& runtime, const Value& self);
// The items' str() with the separator between; markup when the separator is, and then plain items are
// escaped.
Value Join(Runtime& runtime, const Value& separator, const List& items);
// Lines without their ends, or with.
std::vector<Value> SplitLines(Runtime& runtime, const Value& self, bool keep_ends);
// Appends self[begin, end) with every code point in that case.
void AppendInCase(TextBuilder& out, const Text& text, size_t begin, size_t end, Case to);

// self with every code point in the case that `choose(code point)` says of each.
template <class Choose>
Value ByCodePoint(Runtime& runtime, const Value& self, Choose choose) {
  const Text& text = self.as_text();
  TextBuilder out = runtime.NewText();
  size_t begin = 0;  // of the stretch that goes to one case
  Case stretch = Case::kLower;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text.bytes(), at);
    const Case to = choose(c.value);
    if (to != stretch) {
      AppendInCase(out, text, begin, at, stretch);
      begin = at;
      stretch = to;
    }
    at += c.bytes;
  }
  AppendInCase(out, text, begin, text.size(), stretch);
  return Value(std::move(out).Finish(text.markup()));
}

}  // namespace quire::runner::jinja
