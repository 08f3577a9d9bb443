#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/body.h"
#include "api/json/copy_budget.h"
#include "api/json/format_fields.h"
#include "api/json/option_fields.h"
#include "api/json/read.h"
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

// {"id", "data"}: the data, and the id as "doc_id", the name that templates have for it. A text is one of a
// document.
Json DocumentOf(const Json& value) {
  if (value.is_string()) return {{"text", value}};
  const auto data = value.is_object() ? value.find("data") : value.end();
  if (data == value.end() || !(data->is_object() || data->is_string())) return {};
  Json document = data->is_string() ? Json{{"text", *data}} : *data;
  const auto id = value.find("id");
  if (id != value.end() && !id->is_null() && !document.contains("doc_id")) document["doc_id"] = *id;
  return document;
}

// They are a variable of templates.
void GetDocuments(Fields& body, TemplateFields& rendering) {
  constexpr std::string_view kName = "documents";
  const Json* list = body.Find(kName);
  if (list == nullptr || list->is_null() || (list->is_array() && list->empty())) return;
  if (!list->is_array()) return body.Reject(kName, "must be an array");
  Json documents = Json::array();
  for (const Json& value : *list) {
    documents.push_back(DocumentOf(value));
    if (documents.back().is_null())
      return body.Reject(kName, R"(must hold texts or objects with "data", an object or a text)");
  }
  const auto other = ReadJson(rendering.arguments_json);
  Json variables = other ? *other : Json::object();
  variables["documents"] = std::move(documents);
  rendering.arguments_json = DumpJson(variables);
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
  request.messages = GetMessages(body, request.model, request.image_use, request.unknown_options);
  CopyBudget copies(body);
  NameToolResults(request.messages, 1, copies);
  request.rendering = GetTemplateFields(body, Think::kUnset, request.messages);
  GetDocuments(body, request.rendering);
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
