#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/body.h"
#include "api/json/copy_budget.h"
#include "api/json/format_fields.h"
#include "api/json/option_fields.h"
#include "api/openai/chat_messages.h"
#include "api/openai/cohere_chat.h"
#include "api/openai/parts.h"
#include "api/openai/unsupported_fields.h"

namespace quire::api::openai {
namespace {

// Cohere's names beside OpenAI's.
void GetCohereSampling(Fields& body, ChatRequest& request) {
  Options& options = request.options;
  GetSampling(body, options, request.unknown_options);
  body.Get("k", options.top_k, 0);
  body.Get("p", options.top_p, 0.0F, 1.0F);
  GetStop(body, "stop_sequences", options);
}

void GetCohereTools(Fields& body, ChatRequest& request) {
  request.tools = GetToolUse(body);
  bool strict = false;
  body.Get("strict_tools", strict);
  for (Tool& tool : request.tools.tools) tool.strict = tool.strict || strict;
  for (const std::string& name : request.tools.left_out) request.unknown_options.push_back("tools." + name);
}

void GetCohereChat(Fields& body, ChatRequest& request) {
  request.model = GetModel(body);
  body.Get("stream", request.stream);
  request.keep_alive = GetKeepAlive(body);
  request.cache_salt = GetCacheSalt(body);
  GetCohereSampling(body, request);
  body.Get("logprobs", request.logprobs);
  GetCohereTools(body, request);
  request.format = GetResponseFormat(body);
  request.messages = GetMessages(body, request.model, request.unknown_options);
  CopyBudget copies(body);
  NameToolResults(request.messages, 1, copies);
  request.rendering = GetTemplateFields(body, Think::kUnset, request.messages);
  if (HasValue(body, "documents")) Refuse(body, "documents", "documents: not supported");
  for (const std::string_view name : {"citation_options", "safety_mode", "priority"}) body.Find(name);
  AddUnread(body, request.unknown_options);
}

}  // namespace

Result<ChatRequest> ParseCohereChat(std::string_view text) {
  auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  ChatRequest request;
  FirstError error;
  Fields body(*json, "", error);
  GetCohereChat(body, request);
  if (error) return std::unexpected(std::move(*error));
  return request;
}

Options CohereOptions() {
  Options options;
  options.temperature = 0.3F;
  options.top_p = 0.75F;
  options.top_k = 0;
  return options;
}

}  // namespace quire::api::openai
