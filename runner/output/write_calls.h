// Tool calls as the model writes them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "api/base/request.h"
#include "runner/output/format.h"

namespace quire::runner::output {

struct CallText {
  std::string text;
  bool markup = false;  // not the name or the arguments of a call
};

// What the parser of the format reads back as these calls; of arguments that are no JSON object the text.
// REQUIRES: the format has a syntax for calls.
std::vector<CallText> WriteCalls(const Format& format, std::span<const api::ToolCall> calls);

// The syntax of models without one of their own: a JSON object between <tool_call> and </tool_call>.
const ToolCallSyntax& GenericCalls();

}  // namespace quire::runner::output
