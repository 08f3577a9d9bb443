#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/json_body.h"
#include "api/openai.h"

namespace quire::api::openai {
namespace {

void Refuse(Fields& fields, std::string_view field, std::string message) {
  if (fields.ok()) fields.error() = Error{ErrorCode::kUnsupported, std::move(message), fields.PathOf(field)};
}

// One text of all text parts of a message.
std::string GetParts(Fields& message, const Json& parts, const std::string& model) {
  std::string text;
  for (size_t i = 0; i < parts.size() && message.ok(); ++i) {
    Fields part(parts[i], message.PathOf(fmt::format("content[{}]", i)), message.error());
    std::string type;
    std::string piece;
    if (!part.Get("type", type)) part.Reject("type", "is required and must be of type string");
    if (type == "text" || type == "refusal") {
      if (!part.Get(type, piece)) part.Reject(type, "is required and must be of type string");
      text += piece;
    } else if (type == "image_url" || type == "input_audio" || type == "file") {
      Refuse(part, "type", fmt::format("{} does not support content of type \"{}\"", model, type));
    } else {
      part.Reject("type", "must be \"text\"");
    }
  }
  return text;
}

void GetContent(Fields& fields, Message& message, const std::string& model) {
  constexpr std::string_view kName = "content";
  const Json* content = fields.Find(kName);
  if (content == nullptr) {
    if (message.tool_calls.empty()) fields.Reject(kName, "is required unless the message has tool_calls");
  } else if (content->is_string()) {
    message.content = content->get<std::string>();
  } else if (content->is_array()) {
    message.content = GetParts(fields, *content, model);
  } else {
    fields.Reject(kName, "must be of type string or array of parts");
  }
}

Message GetMessage(Fields& fields, const std::string& model) {
  constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};
  Message message;
  message.role = GetRole(fields);
  if (message.role == "developer") message.role = "system";
  if (std::ranges::find(kRoles, message.role) == kRoles.end()) {
    fields.Reject("role", "must be system, developer, user, assistant or tool");
  }
  message.tool_calls = GetToolCalls(fields);
  fields.Get("tool_call_id", message.tool_call_id);
  GetContent(fields, message, model);
  return message;
}

void CheckTools(Fields& body, const std::string& model) {
  for (const std::string_view name : {"tools", "functions"}) {
    const Json* tools = body.FindArray(name);
    if (tools != nullptr && !tools->empty())
      Refuse(body, name, fmt::format("{} does not support tools", model));
  }
  for (const std::string_view name : {"tool_choice", "function_call"}) {
    const Json* choice = body.Find(name);
    if (choice == nullptr || *choice == "none" || *choice == "auto") continue;
    if (choice->is_object() || *choice == "required") {
      Refuse(body, name, fmt::format("{}: {} does not support tools", name, model));
    } else {
      body.Reject(name, R"(must be "none", "auto", "required" or an object)");
    }
  }
}

void CheckResponseFormat(Fields& body) {
  constexpr std::string_view kName = "response_format";
  const Json* value = body.FindObject(kName);
  if (value == nullptr) return;
  Fields format(*value, body.PathOf(kName), body.error());
  std::string type;
  format.Get("type", type);
  if (type == "json_object" || type == "json_schema") {
    Refuse(body, kName, "response_format: structured output is not supported in this version");
  } else if (type != "text") {
    format.Reject("type", R"(must be "text", "json_object" or "json_schema")");
  }
}

// No model of this version thinks, so only "none" is an effort that can be met.
void CheckEffort(Fields& fields, std::string_view name, const std::string& model) {
  constexpr std::array<std::string_view, 7> kEfforts = {"minimal", "low",   "medium", "high",
                                                        "xhigh",   "ultra", "max"};
  std::string effort = "none";
  fields.Get(name, effort);
  if (effort == "none") return;
  if (std::ranges::find(kEfforts, effort) == kEfforts.end()) {
    fields.Reject(name, "must be none, minimal, low, medium, high, xhigh, ultra or max");
  } else {
    Refuse(fields, name, fmt::format("{}: \"{}\" does not support thinking", fields.PathOf(name), model));
  }
}

void CheckModalities(Fields& body, const std::string& model) {
  const Json* list = body.FindArray("modalities");
  if (list == nullptr) return;
  for (const Json& modality : *list) {
    if (modality != "text")
      return Refuse(body, "modalities", fmt::format("{} gives only text (modalities)", model));
  }
}

void CheckUnsupported(Fields& body, const std::string& model) {
  CheckTools(body, model);
  CheckResponseFormat(body);
  CheckEffort(body, "reasoning_effort", model);
  if (const Json* reasoning = body.FindObject("reasoning")) {
    Fields fields(*reasoning, "reasoning", body.error());
    CheckEffort(fields, "effort", model);
  }
  CheckModalities(body, model);
  int32_t choices = 1;
  body.Get("n", choices, 1);
  if (choices != 1)
    Refuse(body, "n", "field \"n\" must be 1: one choice per request is supported in this version");
  const Json* bias = body.FindObject("logit_bias");
  if (bias != nullptr && !bias->empty()) {
    Refuse(body, "logit_bias", "logit_bias is not supported in this version");
  }
}

void GetSampling(Fields& body, ChatRequest& request) {
  // What the request says at its top level goes over `options`.
  GetOptions(body, request.options, request.unknown_options);
  for (const std::string_view name : {"temperature", "top_p", "seed", "stop", "presence_penalty",
                                      "frequency_penalty", "top_k", "min_p", "repeat_penalty"}) {
    GetOption(body, name, request.options);
  }
  body.Get("max_tokens", request.options.num_predict, -1);
  body.Get("max_completion_tokens", request.options.num_predict, -1);
}

void GetLogprobs(Fields& body, ChatRequest& request) {
  body.Get("logprobs", request.logprobs);
  request.top_logprobs = GetTopLogprobs(body);
  if (request.top_logprobs > 0 && !request.logprobs) body.Reject("top_logprobs", "needs logprobs to be true");
}

void GetBody(Fields& body, ChatRequest& request) {
  request.model = GetModel(body);
  body.Get("stream", request.stream);
  if (const Json* options = body.FindObject("stream_options")) {
    Fields fields(*options, "stream_options", body.error());
    fields.Get("include_usage", request.include_usage);
  }
  request.keep_alive = GetKeepAlive(body);
  request.cache_salt = GetCacheSalt(body);
  GetSampling(body, request);
  GetLogprobs(body, request);
  request.messages =
      MessageList(body).Get([&](Fields& message) { return GetMessage(message, request.model); });
  if (request.messages.empty()) body.Reject("messages", "must be an array that is not empty");
  CheckUnsupported(body, request.model);
}

}  // namespace

Result<ChatRequest> ParseChat(std::string_view text) {
  const auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  ChatRequest request;
  FirstError error;
  Fields body(*json, "", error);
  GetBody(body, request);
  if (error) return std::unexpected(std::move(*error));
  return request;
}

Request ToRequest(ChatRequest chat, const ModelDefaults& defaults) {
  Options dialect;
  dialect.temperature = 1.0F;
  dialect.top_p = 1.0F;
  Request request;
  request.params = Resolve(Overlay(Overlay(dialect, defaults.options), chat.options));
  request.overflow = Overflow::kRefuse;
  request.shift = false;  // neither the prompt nor the answer's context is cut here
  request.client.cache_salt = std::move(chat.cache_salt);
  request.logprobs = chat.logprobs;
  request.top_logprobs = chat.top_logprobs;
  request.prompt = ChatPrompt{WithDefaults(std::move(chat.messages), defaults)};
  return request;
}

}  // namespace quire::api::openai
