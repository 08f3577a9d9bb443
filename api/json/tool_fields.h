// The fields of tools and thinking in request bodies.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/base/request.h"
#include "api/json/copy_budget.h"
#include "api/json/fields.h"

namespace quire::api {

struct ToolUse {
  std::vector<Tool> tools;  // empty: there are none, or none may be called
  ToolChoice choice = ToolChoice::kAuto;
  std::string forced_tool = {};            // with kRequired: the one to call, or empty
  bool single_call = false;                // where a call is forced, unless the request speaks of several
  std::vector<std::string> left_out = {};  // names of offered tools that this server does not run
};

// The member "tools"; `get_tool` reads one of them. Of a tool that is left out it gives one without a
// definition.
std::vector<Tool> GetTools(Fields& body, Tool (*get_tool)(Fields& tool, const Json& value),
                           std::vector<std::string>* left_out = nullptr);
// "tools", in OpenAI's shape. A tool that is no function is left out.
std::vector<Tool> GetTools(Fields& body, std::vector<std::string>* left_out);
// Whether `name` is that of one of the tools.
bool HasTool(const std::vector<Tool>& tools, std::string_view name);
// "tools", "tool_choice" and "parallel_tool_calls" as OpenAI has them.
ToolUse GetToolUse(Fields& body);
void SetToolUse(ToolUse use, Request& request, ChatPrompt& prompt);

// "think": a boolean or a level.
Think GetThink(Fields& body);
// OpenAI's names for levels, "none" among them.
Think GetEffort(Fields& fields, std::string_view name);

// Gives results of tools the names of those tools, where the messages say only which call they answer.
// `choices`: each has a copy of the messages.
void NameToolResults(std::vector<Message>& messages, size_t choices, CopyBudget& copies);
inline constexpr std::string_view kForAllResults = "with the names of the tools of all results";
// "tools" has no more than kToolsMax. False: the error names `name`.
bool CheckToolCount(Fields& fields, std::string_view name, size_t count);

}  // namespace quire::api
