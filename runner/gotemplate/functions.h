// The functions that a template may call: those of Go's text/template that make sense for prompts, and
// Ollama's json, currentDate, yesterdayDate and toTypeScriptType.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "runner/jinja/runtime.h"
#include "runner/jinja/text.h"
#include "runner/jinja/value.h"

namespace quire::runner::gotemplate {

struct Function {
  using Call = jinja::Value (*)(jinja::Runtime& runtime, std::span<const jinja::Value> arguments);
  // Evaluates arguments one after another and ends with the first that is false (and) or true (or).
  enum class Lazy : uint8_t { kNo, kAnd, kOr };

  std::string_view name;
  size_t arguments_min = 0;
  size_t arguments_max = 0;
  Call call = nullptr;  // null when lazy
  Lazy lazy = Lazy::kNo;
};

// Null when there is none of this name.
const Function* FindFunction(std::string_view name);

// False, 0, nil, and what is empty are not true.
bool IsTrue(const jinja::Value& value);
// The value as an action prints it: nil is nothing, lists and maps are JSON.
void AppendValue(jinja::Runtime& runtime, jinja::TextBuilder& out, const jinja::Value& value);
// Go's name of the value's kind, for messages.
std::string_view KindName(const jinja::Value& value);

}  // namespace quire::runner::gotemplate
