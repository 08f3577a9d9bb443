// A request's messages and tools as the values chat templates expect, which are those transformers hands to
// them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "api/base/request.h"
#include "runner/jinja/value.h"
#include "runner/prompt/turns.h"

namespace quire::runner {

// How a template wants the arguments of earlier tool calls.
enum class ArgumentStyle : uint8_t {
  kObjects,  // parsed: what most templates write out as JSON themselves
  kText,     // as JSON text: some templates paste it into the prompt
};

// How a template wants messages and tools.
struct ValueForm {
  ArgumentStyle arguments = ArgumentStyle::kObjects;
  uint8_t content_parts = 0;  // TurnRules::content_parts
  bool null_content = false;  // the content beside calls is none where it is empty
};

// kInvalidArgument names the message and what in it is no UTF-8, or an image that stands nowhere in its text.
api::Result<void> CheckTexts(std::span<const api::Message> messages);

// A list of dicts: role and content; reasoning_content and thinking, tool_calls, name and tool_call_id where
// there are any. `suffix` is put behind the last message's content. All strings are of Trust::kRequest,
// except the roles that every chat knows: templates build markers of them ("<|user|>"). The content of a
// message with images is a list of parts, {"type": "image"} and texts, in their order. REQUIRES: all
// texts are UTF-8. Arguments that are no JSON object are one with the text as "_raw". Reading JSON counts as
// work, and its values are bounded, those of all calls together (JsonReader).
api::Result<jinja::Value> MessagesValue(std::span<const Turn> turns, const ValueForm& form,
                                        std::string_view suffix);

// The definitions of the tools as they are given, or as `rules` has them completed; `none` when there are
// none.
api::Result<jinja::Value> ToolsValue(std::span<const api::Tool> tools, const jinja::Value& none,
                                     const TurnRules& rules = {});

// Variables of a template that a request sets: the members of a JSON object, all of Trust::kRequest.
api::Result<std::vector<std::pair<std::string, jinja::Value>>> ArgumentValues(const std::string& object_json);

}  // namespace quire::runner
