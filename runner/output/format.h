// How a model writes thinking and tool calls, found from its chat template and its vocabulary.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

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
  std::string_view family;                    // for logs; "plain" when nothing is known
  const ToolCallSyntax* calls = nullptr;      // null: unknown tool call syntax
  bool generic_calls = false;                 // `calls` is none of the model's own
  const ThinkingForm* thinking = nullptr;     // null: nothing in an answer is thinking
  std::string_view text_begin, text_end;      // around an answer's text, not part of it; mostly empty
  bool harmony = false;                       // channels; calls and thinking are both known
  bool takes_tools = false;                   // the template shows tools to the model
  bool can_think = false;                     // the template says how this model thinks
  bool has_efforts = false;                   // the template knows levels of thinking
  std::vector<std::string_view> tokens = {};  // of the vocabulary: markers, or what begins one

  bool supports_tools() const { return takes_tools && (calls != nullptr || harmony); }
  // Whether the vocabulary has a token for the marker, which then is written in no other way.
  bool HasTokenOf(std::string_view marker) const;
};

// What of a marker may be a token: "<|channel>" of "<|channel>thought", mostly all of it.
std::string_view TokenOf(std::string_view marker);
// Whether some family has a marker of which this is the token.
bool IsMarkerToken(std::string_view token);

// `chat_template` is the template's text; `has_token` tells whether the vocabulary has a token of exactly
// this text.
Format Detect(std::string_view chat_template, const std::function<bool(std::string_view)>& has_token);

struct ParserSetup {
  Format format;
  bool thinking_open = false;  // the prompt ends inside a block of thinking
  bool continues = false;      // the prompt ends inside the answer's text
  bool expects_calls = false;  // otherwise their markup is text like any other
  bool forced = false;         // the answer is calls and nothing else
  bool document = false;       // behind thinking the answer is calls or, as it is, a constrained document
  std::span<const api::Tool> tools = {};  // that may be called; used by MakeParser() only
};

std::unique_ptr<Parser> MakeParser(const ParserSetup& setup);

}  // namespace quire::runner::output
