// The tools of /v1/responses. Functions, also those of a namespace, custom tools and the local shell are
// functions to the model. Tools that OpenAI's own servers run are left out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/json/fields.h"
#include "api/json/tool_fields.h"

namespace quire::api::openai {

// A tool that is more than a plain function: how its calls look in requests and replies.
struct ResponsesTool {
  enum class Kind : uint8_t { kMember, kCustom, kLocalShell };
  Kind kind = Kind::kMember;
  std::string name;        // as the model has it: of a member "NAMESPACE.MEMBER"
  std::string space = {};  // of a member: "NAMESPACE"
};

inline constexpr std::string_view kLocalShell = "local_shell";

// "tools", "tool_choice" and "parallel_tool_calls". ToolUse::left_out has the types of tools that are left
// out, and "NAME.format" of custom tools whose format is of a kind that is not known.
ToolUse GetResponsesTools(Fields& body, std::vector<ResponsesTool>& special);

// The name of a function as the model has it.
std::string JoinName(std::string_view space, std::string_view name);

// The calls of an earlier answer, from input items, with arguments as the model has them.
ToolCall GetCustomCall(Fields& item);
ToolCall GetLocalShellCall(Fields& item);
// A call of any other tool of the client's, as "apply_patch_call".
ToolCall GetOtherCall(Fields& item, std::string_view type);

// Input items that tool calls on OpenAI's servers left behind: nothing of them belongs to the prompt.
bool IsServerItem(std::string_view type);

// The item of a reply that is this call, without its id and status.
Json CallItem(const ToolCall& call, const std::vector<ResponsesTool>& special);

}  // namespace quire::api::openai
