// How a conversation is put before a chat template reads it: what the template refuses or drops is said in
// another way that it shows. Nothing changes for a template that shows everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/request.h"
#include "runner/jinja/text.h"

namespace quire::runner {

// A stretch of the rendered prompt. What came from the request (contents, names, tools) is not from the
// template, so that the tokenizer can read special-token text in it as the plain text it is. A role that
// every chat knows counts as the template's: many build their markers of it.
struct PromptSegment {
  std::string text;
  bool from_template = false;
};

// The text that the model itself writes for these calls: its markers are the template's, names and arguments
// are not.
using WriteCalls = std::function<std::vector<PromptSegment>(std::span<const api::ToolCall>)>;

// A message as a template sees it. The bytes `markers` of the content are not the request's.
struct Turn {
  api::Message message;
  std::vector<jinja::ByteRange> markers = {};  // sorted, apart, on code point borders
};

// Puts the content of `from` behind that of `to`, images too, with `gap` between two texts that are not
// empty.
void AppendContent(Turn& to, std::string_view gap, const Turn& from);

// Replaces the images by a text of the template's where they stand.
void SpellImages(std::vector<Turn>& turns, std::string_view placeholder);
// The content of a message, likewise.
std::vector<PromptSegment> TextWithPlaceholders(const api::Message& message, std::string_view placeholder);

// Which messages a decision concerns.
enum class Scope : uint8_t { kNone, kPast, kAll };  // kPast: those before the last user message

// kAlways: also of calls that have none. kNine: nine letters and digits. kNamed: "functions.NAME:NUMBER",
// where a template shows the id in place of the name.
enum class CallIds : uint8_t { kAny, kAlways, kNine, kNamed };

// What a template needs. The default changes nothing.
struct TurnRules {
  static constexpr uint8_t kUserPart = 1, kSystemPart = 2, kAssistantPart = 4, kToolPart = 8;
  uint8_t content_parts = 0;    // roles whose content is a list of parts
  bool null_content = false;    // the content beside calls is none where it is empty
  bool system_as_user = false;  // there is no system role: its text begins the next user turn
  bool system_at_question =
      false;  // it is shown in a user turn that comes last; behind another it is as without a role
  bool developer_as_system = false;
  bool join_systems = false;  // leading ones are one
  bool later_system_as_user = false;
  bool system_in_calls_as_user = false;  // those behind a call or a result
  bool join_users = false;
  bool join_assistants = false;
  bool skip_empty_assistants = false;
  bool user_first = false;           // an empty user turn comes before an assistant's
  bool user_somewhere = false;       // a system text alone is a user turn
  bool answer_results = false;       // an assistant turn without text stands between results and a user turn
  std::string_view filler = {};      // the text of inserted turns: nothing, or a space
  bool join_user_to_result = false;  // instead, the user's text stands in the result
  bool text_before_calls = false;    // text beside calls is a turn of its own
  bool one_call = false;             // each call is a turn, with its result behind it
  bool results_at_calls = false;     // results stand right behind their calls
  bool mixed_calls_as_text = false;  // calls beside text are part of it
  Scope calls_as_text = Scope::kNone;
  Scope results_as_user = Scope::kNone;
  bool open_calls_as_text = false;  // calls of the last message, which have no results yet
  bool text_without_tools = false;  // both, in a conversation without tools
  bool orphans_as_user = false;     // results that no call asked for
  CallIds ids = CallIds::kAny;
  bool tools_as_text = false;        // definitions stand in the system text
  bool complete_tools = false;       // absent descriptions and parameters of tools are filled in
  bool complete_properties = false;  // and descriptions within parameters
  bool single_types = false;         // of a list of types the first that is not null
  bool functions_text = false;       // the template reads `functions`, tools as JSON text, and `datetime`

  bool operator==(const TurnRules&) const = default;
};

// The conversation for a template with these rules. Where the rules say that the system text describes tools,
// it does.
std::vector<Turn> ArrangeTurns(std::span<const api::Message> messages, std::span<const api::Tool> tools,
                               const TurnRules& rules, const WriteCalls& write_calls);

// Describes tools to a model whose template does not.
std::vector<PromptSegment> DescribeTools(std::span<const api::Tool> tools, const WriteCalls& write_calls);

// Hermes' syntax: a JSON object between <tool_call> and </tool_call>, for models without one of their own.
std::vector<PromptSegment> WriteGenericCalls(std::span<const api::ToolCall> calls);

}  // namespace quire::runner
