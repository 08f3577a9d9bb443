// The markup that constrained output uses: tool calls, and an answer after thinking.
#pragma once

#include <string_view>

#include "runner/output/format.h"

namespace quire::runner::output {

// Stands in a ToolCallTemplate for the number of a call, in digits.
inline constexpr std::string_view kCallNumber = "\x1f";

// A call whose arguments stand between tags, each value as text where it is a string, else as JSON. Line
// breaks may be left out. A call is head, the tool's name, middle, its arguments, tail. An argument is key,
// its name, value, its value, end.
struct TaggedArguments {
  std::string_view head, middle, key, value, end, tail;
  std::string_view text_value = {};  // in place of `value` before a string; empty: the same
};

// An answer of calls is open, the calls with `between` between them, close. A call is head, the tool's name,
// middle, its arguments as a JSON object, tail. The parser of the syntax reads it back.
struct ToolCallTemplate {
  std::string_view open;
  std::string_view head;
  std::string_view middle;
  std::string_view tail;
  std::string_view between;  // empty: an answer has one call
  std::string_view close;
  bool json_name = false;  // the name stands in a JSON string
  // The model prefers name(argument=value, ...), which may replace every call.
  bool python = false;
  // The model prefers arguments between tags, which may replace a call that they can express. Or null.
  const TaggedArguments* tagged = nullptr;
};

// Gpt-oss may name the recipient of a call behind the role: "<|start|>assistant
// to=functions.f<|channel|>commentary json".
inline constexpr std::string_view kHarmonyTo = " to=";
inline constexpr std::string_view kHarmonyRecipient = " to=functions.";

struct AnswerMarkup {
  const ToolCallTemplate* calls = nullptr;  // null: unknown tool call syntax
  std::string_view calls_begin;  // no text holds it; empty: text and calls are not told apart by a marker
  // Begins a call whatever stands before it; empty: no marker does. Calls without it may stand beside where
  // `calls_begin` is empty.
  std::string_view call_marker;
  std::string_view text_begin;
  std::string_view thinking_begin;  // empty: nothing in an answer is thinking
  std::string_view thinking_end;
  std::string_view after_thinking;  // before the answer
  std::string_view answer_begin;    // may stand there, too
};

// Refers to tables of static lifetime.
AnswerMarkup MarkupOf(const Format& format);

}  // namespace quire::runner::output
