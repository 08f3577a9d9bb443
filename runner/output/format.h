// How a model writes thinking and tool calls, found from its chat template and its vocabulary.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "runner/output/parser.h"

namespace quire::runner::output {

struct ToolCallSyntax;

// Where thinking stands in an answer.
struct ThinkingForm {
  std::string_view begin;
  std::string_view end;
  // May stand around the answer behind thinking, and only there; mostly empty.
  std::string_view answer_begin = {}, answer_end = {};
};

// Immutable; any thread. Refers to tables of static lifetime.
struct Format {
  std::string_view family;                 // for logs; "plain" when nothing is known
  const ToolCallSyntax* calls = nullptr;   // null: unknown tool call syntax
  const ThinkingForm* thinking = nullptr;  // null: nothing in an answer is thinking
  std::string_view text_begin, text_end;   // around an answer's text, not part of it; mostly empty
  bool harmony = false;                    // channels; calls and thinking are both known
  bool takes_tools = false;                // the template shows tools to the model
  bool can_think = false;                  // the template says how this model thinks
  bool has_efforts = false;                // the template knows levels of thinking

  bool supports_tools() const { return takes_tools && (calls != nullptr || harmony); }
};

// `chat_template` is the template's text; `has_token` tells whether the vocabulary has a token of exactly
// this text.
Format Detect(std::string_view chat_template, const std::function<bool(std::string_view)>& has_token);

struct ParserSetup {
  Format format;
  bool thinking_open = false;             // the prompt ends inside a block of thinking
  bool continues = false;                 // the prompt ends inside the answer's text
  bool expects_calls = false;             // otherwise their markup is text like any other
  std::span<const api::Tool> tools = {};  // tell the types of parameters; used by MakeParser() only
};

std::unique_ptr<Parser> MakeParser(const ParserSetup& setup);

}  // namespace quire::runner::output
