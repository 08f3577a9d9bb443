#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/limits.h"
#include "api/json/body.h"
#include "api/json/format_fields.h"
#include "api/json/read.h"
#include "api/json/tool_fields.h"
#include "api/openai/chat.h"
#include "api/openai/parts.h"
#include "api/openai/responses.h"

namespace quire::api::openai {
namespace {

bool OneOf(std::string_view value, std::initializer_list<std::string_view> known) {
  return std::ranges::find(known, value) != known.end();
}

std::string RequireString(Fields& fields, std::string_view name) {
  std::string text;
  if (!fields.Get(name, text)) fields.Reject(name, "is required and must be of type string");
  return text;
}

// The messages of one request, from its input items.
class Items {
 public:
  Items(Fields& body, const std::string& model) : body_(body), model_(model) {}

  std::vector<Message> Get() {
    constexpr std::string_view kName = "input";
    const Json* input = body_.Find(kName);
    if (input != nullptr && input->is_string()) {
      return {{"user", input->get<std::string>()}};
    }
    if (input == nullptr || !input->is_array() || input->empty()) {
      body_.Reject(kName, "is required and must be a string or a non-empty array of items");
    }
    for (size_t i = 0; body_.ok() && i < input->size(); ++i) {
      Fields item((*input)[i], fmt::format("input[{}]", i), body_.error());
      GetItem(item);
      if (++counted_ > kMessagesMax) {
        body_.Reject(kName, fmt::format("contains more than {} items", kMessagesMax), ErrorCode::kTooLarge);
      }
    }
    if (messages_.empty()) body_.Reject(kName, "contains no message");
    return std::move(messages_);
  }

 private:
  void GetItem(Fields& item) {
    std::string type = "message";
    item.Get("type", type);
    if (type == "message") return GetMessage(item);
    if (type == "function_call") return GetCall(item);
    if (type == "function_call_output") return GetResult(item);
    if (type == "reasoning") return;  // of an earlier answer; the template gets it from nowhere else either
    Refuse(item, "type", fmt::format("input items of type \"{}\" are not supported", type));
  }

  void GetMessage(Fields& item) {
    Message message{.role = GetRole(item), .content = {}};
    if (message.role == "developer") message.role = "system";
    if (!OneOf(message.role, {"system", "user", "assistant"})) {
      item.Reject("role", "must be system, developer, user or assistant");
    }
    message.content = GetText(item, "content");
    messages_.push_back(std::move(message));
  }

  // Calls follow the assistant's message they belong to, if there is one.
  void GetCall(Fields& item) {
    ToolCall call{RequireString(item, "call_id"), RequireString(item, "name"), "{}"};
    std::string arguments;
    item.Get("arguments", arguments);
    if (!arguments.empty()) {
      const auto parsed = ReadJson(arguments);
      if (!parsed || !parsed->is_object()) return item.Reject("arguments", "must be a JSON object");
      call.arguments_json = DumpJson(*parsed);
    }
    called_[call.id] = call.name;
    if (messages_.empty() || messages_.back().role != "assistant") messages_.push_back({"assistant", ""});
    messages_.back().tool_calls.push_back(std::move(call));
  }

  void GetResult(Fields& item) {
    Message result{.role = "tool", .content = {}};
    result.tool_call_id = RequireString(item, "call_id");
    if (const auto call = called_.find(result.tool_call_id); call != called_.end()) {
      result.tool_name = call->second;
    }
    result.content = GetText(item, "output");
    messages_.push_back(std::move(result));
  }

  std::string GetText(Fields& item, std::string_view name) {
    const Json* content = item.Find(name);
    if (content != nullptr && content->is_string()) return content->get<std::string>();
    if (content == nullptr || !content->is_array()) {
      item.Reject(name, "is required and must be of type string or array of parts");
      return {};
    }
    std::string text;
    for (size_t i = 0; i < content->size() && item.ok(); ++i) {
      Fields part((*content)[i], item.PathOf(fmt::format("{}[{}]", name, i)), item.error());
      const std::string type = RequireString(part, "type");
      if (OneOf(type, {"input_text", "output_text", "text"})) {
        text += RequireString(part, "text");
      } else if (type == "refusal") {
        text += RequireString(part, "refusal");
      } else {
        Refuse(part, "type", fmt::format("{} does not support content of type \"{}\"", model_, type));
      }
    }
    return text;
  }

  Fields& body_;
  const std::string& model_;
  std::vector<Message> messages_;
  std::map<std::string, std::string> called_;  // id -> name of every call so far
  size_t counted_ = 0;
};

// Nothing is kept between requests, so what refers to an earlier one cannot be honored.
void CheckState(Fields& body) {
  for (const std::string_view name : {"previous_response_id", "conversation", "prompt"}) {
    if (HasValue(body, name))
      Refuse(body, name, fmt::format("{}: not supported, this server is stateless", name));
  }
  bool background = false;
  body.Get("background", background);
  if (background) Refuse(body, "background", "background: not supported");
}

std::optional<OutputFormat> GetTextFormat(Fields& body) {
  const Json* text = body.FindObject("text");
  if (text == nullptr) return std::nullopt;
  Fields fields(*text, "text", body.error());
  return GetTypedFormat(fields);
}

// "tools", which are functions without an object around them, and "tool_choice", in the shape of a chat's.
Json ToolsOfChat(Fields& body, const Json& list) {
  Json tools = Json::array();
  for (size_t i = 0; i < list.size() && body.ok(); ++i) {
    Fields tool(list[i], fmt::format("tools[{}]", i), body.error());
    const std::string type = RequireString(tool, "type");
    if (type != "function") Refuse(tool, "type", fmt::format("tools of type \"{}\" are not supported", type));
    Json function = Json::object();
    if (RequireString(tool, "name").empty()) tool.Reject("name", "must not be empty");
    bool strict = false;
    std::string description;
    tool.FindObject("parameters");
    tool.Get("strict", strict);
    tool.Get("description", description);
    for (const char* name : {"name", "description", "parameters", "strict"}) {
      if (const Json* value = tool.Find(name)) function[name] = *value;
    }
    Json entry = {{"type", "function"}};
    entry["function"] = std::move(function);
    tools.push_back(std::move(entry));
  }
  return tools;
}

Json ChoiceOfChat(Fields& body, const Json& choice) {
  if (!choice.is_object()) return choice;
  Fields fields(choice, "tool_choice", body.error());
  const std::string type = RequireString(fields, "type");
  if (type != "function")
    Refuse(fields, "type", fmt::format("tool_choice of type \"{}\" is not supported", type));
  Json named = Json::object();
  named["name"] = RequireString(fields, "name");
  Json object = {{"type", "function"}};
  object["function"] = std::move(named);
  return object;
}

void GetTools(Fields& body, ResponsesRequest& request) {
  Json chat = Json::object();
  if (const Json* tools = body.FindArray("tools")) {
    chat["tools"] = ToolsOfChat(body, *tools);
    request.tools_json = DumpJson(*tools);
  }
  if (const Json* choice = body.Find("tool_choice")) {
    chat["tool_choice"] = ChoiceOfChat(body, *choice);
    request.tool_choice_json = DumpJson(*choice);
  }
  if (const Json* parallel = body.Find("parallel_tool_calls")) chat["parallel_tool_calls"] = *parallel;
  if (!body.ok()) return;
  Fields fields(chat, "", body.error());
  request.tools = GetToolUse(fields);
}

void GetResponsesBody(Fields& body, ResponsesRequest& request) {
  request.model = GetModel(body);
  body.Get("stream", request.stream);
  body.Get("instructions", request.instructions);
  request.keep_alive = GetKeepAlive(body);
  request.cache_salt = GetCacheSalt(body);
  GetSampling(body, request.options, request.unknown_options);
  body.Get("max_output_tokens", request.options.num_predict, 1);
  request.messages = Items(body, request.model).Get();
  CheckState(body);
  request.format = GetTextFormat(body);
  if (const Json* said = body.Find("text")) request.text_json = DumpJson(*said);
  GetTools(body, request);
  if (const Json* reasoning = body.FindObject("reasoning")) {
    Fields fields(*reasoning, "reasoning", body.error());
    request.think = GetEffort(fields, "effort");
  }
}

}  // namespace

Result<ResponsesRequest> ParseResponses(std::string_view text) {
  const auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  ResponsesRequest request;
  FirstError error;
  Fields body(*json, "", error);
  GetResponsesBody(body, request);
  if (error) return std::unexpected(std::move(*error));
  return request;
}

Request ToRequest(ResponsesRequest responses, const ModelDefaults& defaults) {
  ChatRequest chat;
  chat.model = std::move(responses.model);
  chat.think = responses.think;
  chat.format = std::move(responses.format);
  chat.tools = std::move(responses.tools);
  chat.options = std::move(responses.options);
  chat.cache_salt = std::move(responses.cache_salt);
  if (!responses.instructions.empty()) chat.messages.push_back({"system", std::move(responses.instructions)});
  chat.messages.insert(chat.messages.end(), std::make_move_iterator(responses.messages.begin()),
                       std::make_move_iterator(responses.messages.end()));
  return ToRequest(std::move(chat), defaults);
}

}  // namespace quire::api::openai
