// Values as text: Python's str() and repr(), JSON, and Markup's escaping.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runner/jinja/runtime.h"
#include "runner/jinja/text.h"
#include "runner/jinja/value.h"

namespace quire::runner::jinja {

// repr() of a float: the shortest digits that read back the same.
std::string FloatRepr(double value);

// str(): what {{ value }} prints. Undefined is empty.
void AppendStr(TextBuilder& out, const Value& value);
TextRef Str(Runtime& runtime, const Value& value);  // the value's own text when it is a string
// The value itself when it is a string (markup too), else its str().
Value SoftStr(Runtime& runtime, const Value& value);
void AppendRepr(TextBuilder& out, const Value& value);
TextRef Repr(Runtime& runtime, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // one level; nothing = all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// json.dumps(). Raises for what JSON cannot say. A list or dict that holds any untrusted string is untrusted
// whole.
void AppendJson(Runtime& runtime, TextBuilder& out, const Value& value, const JsonStyle& style);

// & < > ' " as HTML entities. Markup is appended unchanged.
void AppendEscaped(TextBuilder& out, const Value& value);

}  // namespace quire::runner::jinja
