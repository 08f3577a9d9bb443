#include "api/openai/responses_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/copy_budget.h"
#include "api/json/read.h"
#include "api/json/text.h"
#include "api/openai/parts.h"

namespace quire::api::openai {
namespace {

using Kind = ResponsesTool::Kind;

constexpr auto kServerTools = std::to_array<std::string_view>(
    {"web_search", "file_search", "code_interpreter", "image_generation", "mcp", "tool_search"});

constexpr std::string_view kCustomParameters =
    R"({"type":"object","properties":{"input":{"type":"string"}},"required":["input"],)"
    R"("additionalProperties":false})";
constexpr std::string_view kShellParameters =
    R"({"type":"object","properties":{"command":{"type":"array","items":{"type":"string"},"minItems":1},)"
    R"("workdir":{"type":"string"},"timeout_ms":{"type":"integer"}},"required":["command"],)"
    R"("additionalProperties":false})";

std::string NonEmpty(Fields& fields, std::string_view name) {
  std::string text;
  if (!fields.Get(name, text) || text.empty())
    fields.Reject(name, "is required and must be a non-empty string");
  return text;
}

// Types go on with a date or "_preview".
bool RunsOnTheServer(std::string_view type) {
  return std::ranges::any_of(kServerTools, [type](std::string_view known) {
    return type.starts_with(known) && (type.size() == known.size() || type[known.size()] == '_');
  });
}

// The arguments of a custom tool whose input has a grammar: runner/constraint reads "x-grammar".
std::string ConstrainedParameters(std::string_view syntax, std::string_view definition) {
  Json input = {{"type", "string"}};
  input["x-grammar"] = {{"syntax", syntax}, {"definition", definition}};
  Json parameters = {{"type", "object"}, {"additionalProperties", false}};
  parameters["properties"] = {{"input", std::move(input)}};
  parameters["required"] = Json::array({"input"});
  return DumpJson(parameters);
}

struct ToolSchema {
  std::string field = {};  // as the request names it
  std::string json = {};   // what the arguments must match, where that is more than the model is shown
};

Json ChatTool(Json function) {
  Json tool = {{"type", "function"}};
  tool["function"] = std::move(function);
  return tool;
}

Json NamedFunction(std::string_view name) {
  Json named = Json::object();
  named["name"] = name;
  return ChatTool(std::move(named));
}

// "tools" in the shape of a chat's.
class ToolList {
 public:
  // `schemas`: of each tool.
  ToolList(Fields& body, std::vector<ResponsesTool>& special, std::vector<std::string>& left_out,
           std::vector<ToolSchema>& schemas)
      : body_(body), special_(special), left_out_(left_out), schemas_(schemas) {}

  Json Get(const Json& list) {
    if (!CheckToolCount(body_, "tools", list.size())) return Json::array();
    for (size_t i = 0; i < list.size() && body_.ok(); ++i) {
      Fields tool(list[i], fmt::format("tools[{}]", i), body_.error());
      Add(tool);
    }
    return std::move(tools_);
  }

 private:
  void Add(Fields& tool) {
    const std::string type = NonEmpty(tool, "type");
    if (type == "function") return AddFunction(tool, {});
    if (type == "custom") return AddCustom(tool);
    if (type == "namespace") return AddNamespace(tool);
    if (type == kLocalShell) return AddLocalShell();
    left_out_.push_back(type);  // for OpenAI's servers, or for a client that speaks with them
  }

  void AddFunction(Fields& tool, std::string_view space) {
    const std::string name = JoinName(space, NonEmpty(tool, "name"));
    bool strict = false;
    std::string description;
    tool.FindObject("parameters");
    tool.Get("strict", strict);
    tool.Get("description", description);
    Json function = Json::object();
    function["name"] = name;
    for (const char* member : {"description", "parameters", "strict"}) {
      if (const Json* value = tool.Find(member)) function[member] = *value;
    }
    if (!space.empty()) special_.push_back({Kind::kMember, name, std::string(space)});
    tools_.push_back(ChatTool(std::move(function)));
    schemas_.push_back({.field = tool.PathOf("parameters")});
  }

  void AddNamespace(Fields& tool) {
    const std::string space = NonEmpty(tool, "name");
    const Json* members = tool.FindArray("tools");
    if (members == nullptr) return tool.Reject("tools", "is required and must be of type array");
    members_ += members->size();
    constexpr size_t kCopies = 4;  // of the name: in two of the member's, and twice beside it
    if (!CheckToolCount(body_, "tools", members_) ||
        !copies_.Spend("tools", space.size(), kCopies * members->size(),
                       "with the namespace of every tool")) {
      return;
    }
    for (size_t i = 0; i < members->size() && body_.ok(); ++i) {
      Fields member((*members)[i], tool.PathOf(fmt::format("tools[{}]", i)), body_.error());
      const std::string type = NonEmpty(member, "type");
      if (type == "function") {
        AddFunction(member, space);
      } else {
        left_out_.push_back(type);
      }
    }
  }

  // A grammar of the input is part of the description.
  void AddCustom(Fields& tool) {
    const std::string name = NonEmpty(tool, "name");
    std::string description;
    std::string enforced;
    tool.Get("description", description);
    if (const Json* format = tool.FindObject("format")) {
      Fields fields(*format, tool.PathOf("format"), body_.error());
      std::string type = "text";
      std::string syntax;
      std::string definition;
      fields.Get("type", type);
      fields.Get("syntax", syntax);
      fields.Get("definition", definition);
      if (type == "grammar" && (syntax == "lark" || syntax == "regex") && !definition.empty()) {
        enforced = ConstrainedParameters(syntax, definition);
      } else if (type != "text") {
        left_out_.push_back(name + ".format");
      }
      if (!definition.empty())
        description += fmt::format("\nThe input follows this grammar ({}):\n{}", syntax, definition);
    }
    special_.push_back({Kind::kCustom, name});
    AddDefined(name, description, kCustomParameters, std::move(enforced));
  }

  void AddLocalShell() {
    special_.push_back({Kind::kLocalShell, std::string(kLocalShell)});
    AddDefined(kLocalShell, "Runs a program on the user's computer.", kShellParameters);
  }

  void AddDefined(std::string_view name, std::string_view description, std::string_view parameters,
                  std::string enforced = {}) {
    Json function = {{"name", name}, {"description", description}};
    function["parameters"] = Json::parse(parameters);
    tools_.push_back(ChatTool(std::move(function)));
    schemas_.push_back({.json = std::move(enforced)});
  }

  Fields& body_;
  CopyBudget copies_{body_};
  size_t members_ = 0;  // of all namespaces
  std::vector<ResponsesTool>& special_;
  std::vector<std::string>& left_out_;
  Json tools_ = Json::array();
  std::vector<ToolSchema>& schemas_;
};

// The name of a tool in "tool_choice"; empty after an error. `left_out`: such a tool is no error.
std::string NameIn(Fields& fields, bool* left_out = nullptr) {
  const std::string type = NonEmpty(fields, "type");
  if (type == "function") {
    std::string space;
    fields.Get("namespace", space);
    return JoinName(space, NonEmpty(fields, "name"));
  }
  if (type == "custom") return NonEmpty(fields, "name");
  if (type == kLocalShell) return type;
  if (left_out != nullptr) {
    *left_out = true;
  } else {
    const std::string_view why = RunsOnTheServer(type) ? "runs on OpenAI's servers only" : "is not supported";
    Refuse(fields, "type", fmt::format("a tool of type \"{}\" {}", type, why));
  }
  return {};
}

Json AllowedOfChat(Fields& choice) {
  Json tools = Json::array();
  const Json* list = choice.FindArray("tools");
  if (list != nullptr) CheckToolCount(choice, "tools", list->size());
  for (size_t i = 0; list != nullptr && i < list->size() && choice.ok(); ++i) {
    Fields one((*list)[i], choice.PathOf(fmt::format("tools[{}]", i)), choice.error());
    bool left_out = false;
    const std::string name = NameIn(one, &left_out);
    if (!left_out) tools.push_back(NamedFunction(name));
  }
  Json allowed = Json::object();
  if (const Json* mode = choice.Find("mode")) allowed["mode"] = *mode;
  allowed["tools"] = std::move(tools);
  Json object = {{"type", "allowed_tools"}};
  object["allowed_tools"] = std::move(allowed);
  return object;
}

Json ChoiceOfChat(Fields& body, const Json& choice) {
  if (!choice.is_object()) return choice;
  Fields fields(choice, "tool_choice", body.error());
  const Json* type = fields.Find("type");
  if (type != nullptr && IsText(*type, "allowed_tools")) return AllowedOfChat(fields);
  return NamedFunction(NameIn(fields));
}

const ResponsesTool* FindSpecial(const std::vector<ResponsesTool>& special, std::string_view name) {
  const auto found = std::ranges::find(special, name, &ResponsesTool::name);
  return found == special.end() ? nullptr : &*found;
}

Json MemberOr(const Json& object, std::string_view name, Json otherwise) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found == object.end() ? std::move(otherwise) : *found;
}

}  // namespace

std::string JoinName(std::string_view space, std::string_view name) {
  return space.empty() ? std::string(name) : fmt::format("{}.{}", space, name);
}

bool IsServerItem(std::string_view type) {
  if (type.ends_with("_call")) return RunsOnTheServer(type.substr(0, type.size() - 5));
  return type == "mcp_list_tools" || type == "tool_search_output";
}

ToolUse GetResponsesTools(Fields& body, std::vector<ResponsesTool>& special) {
  std::vector<std::string> left_out;
  std::vector<ToolSchema> schemas;
  Json chat = Json::object();
  if (const Json* tools = body.FindArray("tools")) {
    chat["tools"] = ToolList(body, special, left_out, schemas).Get(*tools);
  }
  if (const Json* choice = body.Find("tool_choice")) chat["tool_choice"] = ChoiceOfChat(body, *choice);
  if (const Json* parallel = body.Find("parallel_tool_calls")) chat["parallel_tool_calls"] = *parallel;
  if (!body.ok()) return {};
  Fields fields(chat, "", body.error());
  ToolUse use = GetToolUse(fields);
  for (size_t i = 0; i < use.tools.size(); ++i) {
    use.tools[i].parameters_field = std::move(schemas[i].field);
    if (!schemas[i].json.empty()) use.tools[i].parameters_json = std::move(schemas[i].json);
  }
  use.left_out = std::move(left_out);
  return use;
}

ToolCall GetCustomCall(Fields& item) {
  ToolCall call{NonEmpty(item, "call_id"), NonEmpty(item, "name"), "{}"};
  std::string input;
  item.Get("input", input);
  Json arguments = Json::object();
  arguments["input"] = std::move(input);
  call.arguments_json = DumpJson(arguments);
  return call;
}

ToolCall GetLocalShellCall(Fields& item) {
  ToolCall call{{}, std::string(kLocalShell), "{}"};
  if (!item.Get("call_id", call.id)) call.id = NonEmpty(item, "id");
  const Json* action = item.FindObject("action");
  if (action == nullptr) {
    item.Reject("action", "is required and must be of type object");
    return call;
  }
  Fields fields(*action, item.PathOf("action"), item.error());
  Json arguments = Json::object();
  const auto copy = [&](const char* name, const char* as) {
    if (const Json* value = fields.Find(name)) arguments[as] = *value;
  };
  copy("command", "command");
  copy("working_directory", "workdir");
  copy("timeout_ms", "timeout_ms");
  call.arguments_json = DumpJson(arguments);
  return call;
}

ToolCall GetOtherCall(Fields& item, std::string_view type) {
  ToolCall call{{}, std::string(type.substr(0, type.size() - std::string_view("_call").size())), "{}"};
  if (!item.Get("call_id", call.id)) call.id = NonEmpty(item, "id");
  for (const char* name : {"action", "operation", "arguments", "input"}) {
    const Json* value = item.Find(name);
    if (value != nullptr && value->is_object()) call.arguments_json = DumpJson(*value);
  }
  return call;
}

Json CallItem(const ToolCall& call, const std::vector<ResponsesTool>& special) {
  const ResponsesTool* tool = FindSpecial(special, call.name);
  if (tool == nullptr || tool->kind == Kind::kMember) {
    Json item = {{"type", "function_call"},
                 {"arguments", call.arguments_json},
                 {"call_id", call.id},
                 {"name", call.name}};
    if (tool == nullptr) return item;
    item["name"] = call.name.substr(tool->space.size() + 1);
    item["namespace"] = tool->space;
    return item;
  }
  const auto parsed = ReadJson(call.arguments_json);
  const Json arguments = parsed ? *parsed : Json::object();
  if (tool->kind == Kind::kCustom) {
    const Json input = MemberOr(arguments, "input", nullptr);
    return {{"type", "custom_tool_call"},
            {"call_id", call.id},
            {"name", call.name},
            {"input", input.is_string() ? input : Json(call.arguments_json)}};
  }
  Json action = {{"type", "exec"}};
  action["command"] = MemberOr(arguments, "command", Json::array());
  action["env"] = Json::object();
  action["timeout_ms"] = MemberOr(arguments, "timeout_ms", nullptr);
  action["user"] = nullptr;
  action["working_directory"] = MemberOr(arguments, "workdir", nullptr);
  Json item = {{"type", "local_shell_call"}, {"call_id", call.id}};
  item["action"] = std::move(action);
  return item;
}

}  // namespace quire::api::openai
