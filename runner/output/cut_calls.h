// Calls of an answer that had to be calls, where its end cuts the last one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runner/output/tool_call_syntax.h"
#include "runner/output/tools.h"

namespace quire::runner::output {

// The beginning of a JSON object with what closes it behind its last complete member.
std::string CloseObject(std::string_view text);

// The calls in `text`, the last one with those arguments that are complete. A call whose name is cut is none,
// unless it is the answer's first and there is one tool only.
std::vector<api::ToolCall> ReadCutCalls(const ToolCallSyntax& syntax, std::string_view text,
                                        const Tools& tools, bool is_first);

}  // namespace quire::runner::output
