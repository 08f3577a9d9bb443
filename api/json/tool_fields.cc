#include "api/json/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/limits.h"
#include "api/json/read.h"
#include "api/json/text.h"

namespace quire::api {
namespace {

Tool GetTool(Fields& fields, const Json& value) {
  Tool tool;
  std::string type = "function";
  fields.Get("type", type);
  if (type != "function") {  // for some other server to run: offered, not asked for
    tool.name = std::move(type);
    return tool;
  }
  const Json* described = fields.FindObject("function");
  if (described == nullptr) {
    fields.Reject("function", "is required and must be of type object");
    return tool;
  }
  Fields function(*described, fields.PathOf("function"), fields.error());
  if (!function.Get("name", tool.name) || tool.name.empty()) {
    function.Reject("name", "is required and must be a non-empty string");
  }
  if (const Json* parameters = function.FindObject("parameters"))
    tool.parameters_json = DumpJson(*parameters);
  tool.parameters_field = function.PathOf("parameters");
  function.Get("strict", tool.strict);
  tool.definition_json = DumpJson(value);
  return tool;
}

std::string GetNamedFunction(Fields& fields) {
  std::string type = "function";
  fields.Get("type", type);
  if (type != "function") {
    fields.Reject("type", fmt::format("names a tool of type \"{}\", which is not supported", type),
                  ErrorCode::kUnsupported);
    return {};
  }
  const Json* function = fields.FindObject("function");
  if (function == nullptr) {
    fields.Reject("function", "is required and must be of type object");
    return {};
  }
  Fields named(*function, fields.PathOf("function"), fields.error());
  std::string name;
  if (!named.Get("name", name)) named.Reject("name", "is required and must be of type string");
  return name;
}

// {"type":"allowed_tools","allowed_tools":{"mode","tools"}}: the prompt shows all tools, so that it does not
// change.
void GetAllowedTools(Fields& choice, ToolUse& use) {
  const Json* object = choice.FindObject("allowed_tools");
  if (object == nullptr) return choice.Reject("allowed_tools", "is required and must be of type object");
  Fields allowed(*object, choice.PathOf("allowed_tools"), choice.error());
  std::string mode = "auto";
  allowed.Get("mode", mode);
  if (mode != "auto" && mode != "required") allowed.Reject("mode", R"(must be "auto" or "required")");
  if (mode == "required") use.choice = ToolChoice::kRequired;
  const Json* list = allowed.FindArray("tools");
  if (list == nullptr) return allowed.Reject("tools", "is required and must be of type array");
  if (!CheckToolCount(allowed, "tools", list->size())) return;
  std::map<std::string_view, Tool*>
      by_name;  // the first of each name; a client can choose names of the same hash
  for (Tool& tool : use.tools) {
    tool.callable = false;
    by_name.try_emplace(tool.name, &tool);
  }
  for (size_t i = 0; i < list->size() && choice.ok(); ++i) {
    Fields one((*list)[i], allowed.PathOf(fmt::format("tools[{}]", i)), choice.error());
    const std::string name = GetNamedFunction(one);
    const auto tool = by_name.find(name);
    if (tool == by_name.end()) {
      one.Reject("function", fmt::format("names \"{}\", which is not one of the tools", name));
    } else {
      tool->second->callable = true;
    }
  }
}

// {"type":"function","function":{"name"}}
void GetNamedChoice(Fields& body, const Json& choice, ToolUse& use) {
  Fields fields(choice, body.PathOf("tool_choice"), body.error());
  const Json* type = fields.Find("type");
  if (type != nullptr && IsText(*type, "allowed_tools")) return GetAllowedTools(fields, use);
  use.choice = ToolChoice::kRequired;
  use.forced_tool = GetNamedFunction(fields);
}

}  // namespace

std::vector<Tool> GetTools(Fields& body, Tool (*get_tool)(Fields& tool, const Json& value),
                           std::vector<std::string>* left_out) {
  constexpr std::string_view kName = "tools";
  std::vector<Tool> tools;
  const Json* list = body.FindArray(kName);
  if (list == nullptr || !CheckToolCount(body, kName, list->size())) return tools;
  size_t bytes = 0;
  for (size_t i = 0; i < list->size() && body.ok(); ++i) {
    Fields tool((*list)[i], body.PathOf(fmt::format("{}[{}]", kName, i)), body.error());
    Tool got = get_tool(tool, (*list)[i]);
    if (left_out != nullptr && got.definition_json.empty()) {
      left_out->push_back(std::move(got.name));
      continue;
    }
    bytes += tools.emplace_back(std::move(got)).definition_json.size();
    if (bytes <= kToolBytesMax) continue;
    body.Reject(kName, fmt::format("contains more than {} bytes", kToolBytesMax), ErrorCode::kTooLarge);
  }
  return tools;
}

std::vector<Tool> GetTools(Fields& body, std::vector<std::string>* left_out) {
  return GetTools(body, GetTool, left_out);
}

bool HasTool(const std::vector<Tool>& tools, std::string_view name) {
  return std::ranges::find(tools, name, &Tool::name) != tools.end();
}

ToolUse GetToolUse(Fields& body) {
  constexpr std::string_view kChoice = "tool_choice";
  ToolUse use;
  use.tools = GetTools(body, &use.left_out);
  bool parallel = true;
  const bool says_parallel = body.Get("parallel_tool_calls", parallel);
  use.single_call = !parallel;
  const Json* choice = body.Find(kChoice);
  if (choice == nullptr) return use;
  const std::string word = choice->is_string() ? AsciiLower(choice->get<std::string>()) : std::string();
  if (word == "auto") return use;
  if (word == "none") {
    use.tools.clear();
  } else if (word == "required" || word == "any") {  // "REQUIRED": Cohere's spelling; "any": Mistral's word
    use.choice = ToolChoice::kRequired;
  } else if (choice->is_object()) {
    GetNamedChoice(body, *choice, use);
  } else {
    body.Reject(kChoice, R"(must be "none", "auto", "required" or an object)");
  }
  if (use.choice != ToolChoice::kRequired || !body.ok()) return use;
  // A small model that must call goes on calling.
  if (!says_parallel) use.single_call = true;
  if (std::ranges::none_of(use.tools, &Tool::callable)) {
    body.Reject(kChoice, "requires tools");
  } else if (!use.forced_tool.empty() && !HasTool(use.tools, use.forced_tool)) {
    body.Reject(kChoice, fmt::format("names \"{}\", which is not one of the tools", use.forced_tool));
  }
  return use;
}

void SetToolUse(ToolUse use, Request& request, ChatPrompt& prompt) {
  prompt.tools = std::move(use.tools);
  request.tool_choice = use.choice;
  request.forced_tool = std::move(use.forced_tool);
  request.single_tool_call = use.single_call;
}

Think GetThink(Fields& body) {
  constexpr std::string_view kName = "think";
  constexpr std::array<std::pair<std::string_view, Think>, 4> kLevels = {
      {{"low", Think::kLow}, {"medium", Think::kMedium}, {"high", Think::kHigh}, {"max", Think::kMax}}};
  const Json* value = body.Find(kName);
  if (value == nullptr) return Think::kUnset;
  if (value->is_boolean()) return value->get<bool>() ? Think::kOn : Think::kOff;
  if (value->is_string()) {
    for (const auto& [name, think] : kLevels) {
      if (value->get_ref<const std::string&>() == name) return think;
    }
  }
  body.Reject(kName, R"(must be true, false, "low", "medium", "high" or "max")");
  return Think::kUnset;
}

Think GetEffort(Fields& fields, std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Think>, 8> kEfforts = {{{"none", Think::kOff},
                                                                           {"minimal", Think::kLow},
                                                                           {"low", Think::kLow},
                                                                           {"medium", Think::kMedium},
                                                                           {"high", Think::kHigh},
                                                                           {"xhigh", Think::kMax},
                                                                           {"ultra", Think::kMax},
                                                                           {"max", Think::kMax}}};
  std::string effort;
  if (!fields.Get(name, effort)) return Think::kUnset;
  for (const auto& [known, think] : kEfforts) {
    if (effort == known) return think;
  }
  fields.Reject(name, "must be none, minimal, low, medium, high, xhigh, ultra or max");
  return Think::kUnset;
}

bool CheckToolCount(Fields& fields, std::string_view name, size_t count) {
  if (count <= kToolsMax) return true;
  fields.Reject(name, fmt::format("contains more than {} tools", kToolsMax), ErrorCode::kTooLarge);
  return false;
}

void NameToolResults(std::vector<Message>& messages, size_t choices, CopyBudget& copies) {
  std::map<std::string_view, std::string_view> names;
  for (Message& message : messages) {
    for (const ToolCall& call : message.tool_calls) names[call.id] = call.name;
    const auto found = names.find(message.tool_call_id);
    if (!message.tool_name.empty() || message.tool_call_id.empty() || found == names.end()) continue;
    if (!copies.Spend("messages", found->second.size(), choices, kForAllResults)) return;
    message.tool_name = found->second;
  }
}

}  // namespace quire::api
