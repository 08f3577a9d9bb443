#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/body.h"
#include "api/json/copy_budget.h"
#include "api/json/format_fields.h"
#include "api/json/text.h"
#include "api/openai/chat.h"
#include "api/openai/chat_messages.h"
#include "api/openai/parts.h"
#include "api/openai/unsupported_fields.h"

namespace quire::api::openai {
namespace {

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
  GetPromptLogprobs(body, request);
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
  request.messages = GetMessages(body, request.model, request.image_use, request.unknown_options);
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

Options DefaultOptions() {
  Options options;
  options.temperature = 1.0F;
  options.top_p = 1.0F;
  return options;
}

Request ToRequest(ChatRequest chat, const ModelDefaults& defaults, const Options& dialect) {
  Request request;
  SetOptions(dialect, defaults.options, chat.options, request);
  request.overflow = Overflow::kRefuse;
  request.shift = false;  // neither the prompt nor the answer's context is cut here
  request.client.cache_salt = std::move(chat.cache_salt);
  request.logprobs = chat.logprobs;
  request.top_logprobs = chat.top_logprobs;
  request.prompt_logprobs = chat.prompt_logprobs;
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
