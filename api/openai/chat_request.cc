#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/body.h"
#include "api/json/copy_budget.h"
#include "api/json/format_fields.h"
#include "api/json/omitted_content.h"
#include "api/json/text.h"
#include "api/openai/chat.h"
#include "api/openai/parts.h"
#include "api/openai/unsupported_fields.h"

namespace quire::api::openai {
namespace {

// One text of all text parts of a message.
std::string GetParts(Fields& message, const Json& parts, const std::string& model, OmittedContent& omitted,
                     OmittedContent::Turn turn) {
  std::string text;
  for (size_t i = 0; i < parts.size() && message.ok(); ++i) {
    Fields part(parts[i], message.PathOf(fmt::format("content[{}]", i)), message.error());
    std::string type;
    std::string piece;
    if (!part.Get("type", type)) part.Reject("type", "is required and must be of type string");
    if (type == "text" || type == "refusal") {
      if (!part.Take(type, piece)) part.Reject(type, "is required and must be of type string");
      AppendText(text, std::move(piece));
    } else if (part.ok()) {
      if (!text.empty() && text.back() != '\n') text += '\n';
      text += omitted.LineFor(part, "type", type, turn,
                              fmt::format("{} does not support content of type \"{}\"", model, type)) +
              "\n";
    }
  }
  return text;
}

void GetContent(Fields& fields, Message& message, const std::string& model, OmittedContent& omitted) {
  constexpr std::string_view kName = "content";
  const Json* content = fields.Find(kName);
  if (content == nullptr) {
    const bool may_lack = message.role == "assistant" || message.role == "tool";
    if (!may_lack) fields.Reject(kName, "is required in a message of this role");
    fields.Get("refusal", message.content);
  } else if (content->is_string()) {
    message.content = TakeText(*content);
  } else if (content->is_array()) {
    const bool now = message.role == "user" || message.role == "system";
    message.content = GetParts(fields, *content, model, omitted,
                               now ? OmittedContent::Turn::kNow : OmittedContent::Turn::kHistory);
  } else {
    fields.Reject(kName, "must be of type string or array of parts");
  }
}

Message GetMessage(Fields& fields, const std::string& model, OmittedContent& omitted) {
  constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};
  Message message;
  message.role = GetRole(fields);
  if (message.role == "developer") message.role = "system";
  if (message.role ==
      "function") {  // what "tool" replaced: the result of the last call, by its function's name
    message.role = "tool";
    fields.Get("name", message.tool_name);
  }
  if (std::ranges::find(kRoles, message.role) == kRoles.end()) {
    fields.Reject("role", "must be system, developer, user, assistant or tool");
  }
  message.tool_calls = GetToolCalls(fields);
  if (const Json* call = fields.FindObject("function_call")) {  // what "tool_calls" replaced
    Fields function(*call, fields.PathOf("function_call"), fields.error());
    message.tool_calls.push_back(GetFunction(function));
  }
  fields.Get("tool_call_id", message.tool_call_id);
  if (!fields.Take("reasoning_content", message.thinking)) fields.Take("reasoning", message.thinking);
  if (message.role == "assistant") omitted.AnswerFollows();
  GetContent(fields, message, model, omitted);
  return message;
}

// The forms that "tools" and "tool_choice" replaced.
void CheckFunctions(Fields& body) {
  const Json* functions = body.FindArray("functions");
  if (functions != nullptr && !functions->empty()) {
    Refuse(body, "functions", "functions is not supported; use tools");
  }
  const Json* choice = body.Find("function_call");
  if (choice != nullptr && !IsText(*choice, "none") && !IsText(*choice, "auto")) {
    Refuse(body, "function_call", "function_call is not supported; use tool_choice");
  }
}

Think GetThinking(Fields& body) {
  const Think effort = GetEffort(body, "reasoning_effort");
  const Json* reasoning = effort == Think::kUnset ? body.FindObject("reasoning") : nullptr;
  if (reasoning == nullptr) return effort;
  Fields fields(*reasoning, "reasoning", body.error());
  return GetEffort(fields, "effort");
}

void CheckModalities(Fields& body, const std::string& model) {
  const Json* list = body.FindArray("modalities");
  if (list == nullptr) return;
  for (const Json& modality : *list) {
    if (modality != "text")
      return Refuse(body, "modalities", fmt::format("{} supports only text output (modalities)", model));
  }
}

void CheckUnsupported(Fields& body, const std::string& model) {
  CheckFunctions(body);
  CheckModalities(body, model);
  RefuseUnsupported(body, Route::kChat);
  bool echo = false;
  body.Get("echo", echo);
  if (echo) Refuse(body, "echo", "echo: not supported in chats");
}

void GetLogprobs(Fields& body, ChatRequest& request) {
  body.Get("logprobs", request.logprobs);
  request.top_logprobs = GetTopLogprobs(body);
  if (request.top_logprobs > 0 && !request.logprobs)
    body.Reject("top_logprobs", "requires logprobs to be true");
}

void GetBody(Fields& body, ChatRequest& request, size_t body_bytes) {
  request.model = GetModel(body);
  GetStream(body, request);
  GetProgress(body, request);
  request.keep_alive = GetKeepAlive(body);
  request.cache_salt = GetCacheSalt(body);
  GetSampling(body, request.options, request.unknown_options);
  CopyBudget copies(body);
  request.n = GetChoices(body, body_bytes, copies);
  CheckBestOf(body, request.n);
  GetLogprobs(body, request);
  request.tools = GetToolUse(body);
  for (const std::string& name : request.tools.left_out) request.unknown_options.push_back("tools." + name);
  request.format = GetResponseFormat(body);
  OmittedContent omitted;
  request.messages =
      MessageList(body).Get([&](Fields& message) { return GetMessage(message, request.model, omitted); });
  omitted.Finish(body, request.unknown_options);
  if (request.messages.empty()) body.Reject("messages", "must be a non-empty array");
  NameToolResults(request.messages, static_cast<size_t>(request.n), copies);
  request.rendering = GetTemplateFields(body, GetThinking(body), request.messages);
  CheckUnsupported(body, request.model);
  AddUnread(body, request.unknown_options);
}

}  // namespace

Result<ChatRequest> ParseChat(std::string_view text) {
  auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  ChatRequest request;
  FirstError error;
  Fields body(*json, "", error);
  GetBody(body, request, text.size());
  if (error) return std::unexpected(std::move(*error));
  return request;
}

Request ToRequest(ChatRequest chat, const ModelDefaults& defaults) {
  Options dialect;
  dialect.temperature = 1.0F;
  dialect.top_p = 1.0F;
  Request request;
  SetOptions(dialect, defaults.options, chat.options, request);
  request.overflow = Overflow::kRefuse;
  request.shift = false;  // neither the prompt nor the answer's context is cut here
  request.client.cache_salt = std::move(chat.cache_salt);
  request.logprobs = chat.logprobs;
  request.top_logprobs = chat.top_logprobs;
  request.delta_per_token = chat.chunk_per_token;
  request.report_progress = chat.return_progress;
  request.format = std::move(chat.format);
  request.model_name = std::move(chat.model);
  ChatPrompt prompt{WithDefaults(std::move(chat.messages), defaults)};
  SetToolUse(std::move(chat.tools), request, prompt);
  SetTemplateFields(std::move(chat.rendering), request, prompt);
  request.prompt = std::move(prompt);
  return request;
}

std::vector<Request> ToChoices(Request request, int32_t n) {
  const int64_t seed = request.params.seed;
  std::vector<Request> choices(static_cast<size_t>(n) - 1, request);
  choices.push_back(std::move(request));
  for (size_t i = 0; seed >= 0 && i < choices.size(); ++i) {
    const uint64_t moved = static_cast<uint64_t>(seed) + i;
    choices[i].params.seed = static_cast<int64_t>(moved & static_cast<uint64_t>(INT64_MAX));
  }
  return choices;
}

}  // namespace quire::api::openai
