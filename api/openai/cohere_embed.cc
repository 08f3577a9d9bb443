#include "api/openai/cohere_embed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/limits.h"
#include "api/base/random_id.h"
#include "api/json/body.h"
#include "api/json/read.h"
#include "api/json/text.h"
#include "api/openai/vector_text.h"

namespace quire::api {
namespace {

// The text of {"content": [{"type": "text", "text": "..."}]}; several are concatenated.
std::optional<std::string> CohereContentOf(const Json& input) {
  const auto content = input.is_object() ? input.find("content") : input.end();
  if (!input.is_object() || content == input.end() || !content->is_array() || content->empty()) {
    return std::nullopt;
  }
  std::string text;
  for (const Json& part : *content) {
    if (!part.is_object()) return std::nullopt;
    const auto type = part.find("type"), value = part.find("text");
    if (type == part.end() || !IsText(*type, "text") || value == part.end() || !value->is_string()) {
      return std::nullopt;
    }
    AppendText(text, TakeText(*value));
  }
  return text;
}

void GetCohereTexts(Fields& body, EmbedRequest& request) {
  const bool contents = !body.Has("texts") && body.Has("inputs");
  if (!contents && body.Has("inputs")) return body.Reject("inputs", "must not be there beside \"texts\"");
  request.field = contents ? "inputs" : "texts";
  const Json* list = body.FindArray(request.field);
  if (list == nullptr) return body.Reject(request.field, "is required");
  if (list->empty()) return body.Reject(request.field, "must not be empty");
  if (list->size() > kEmbedInputsMax) {
    return body.Reject(request.field, fmt::format("must have at most {} texts", kEmbedInputsMax));
  }
  request.inputs.reserve(list->size());
  for (const Json& value : *list) {
    auto text = contents            ? CohereContentOf(value)
                : value.is_string() ? std::optional(TakeText(value))
                                    : std::nullopt;
    if (!text) {
      return body.Reject(request.field, contents ? "must be an array of objects whose \"content\" is text"
                                                 : "must be an array of strings");
    }
    request.inputs.push_back({.text = *std::move(text)});
  }
}

void GetVectorTypes(Fields& body, EmbedRequest& request) {
  const Json* list = body.FindArray("embedding_types");
  if (list == nullptr || list->empty()) {
    return;
  }
  request.by_type = true;
  request.types.clear();
  for (const Json& value : *list) {
    const auto type = value.is_string() ? VectorTypeOf(value.get_ref<const std::string&>()) : std::nullopt;
    if (!type) {
      return body.Reject("embedding_types", "must have \"float\", \"base64\", \"binary\" or \"ubinary\" only",
                         ErrorCode::kUnsupported);
    }
    if (std::ranges::find(request.types, *type) == request.types.end()) request.types.push_back(*type);
  }
}

void GetInputType(Fields& body, EmbedRequest& request) {
  constexpr auto kTypes =
      std::to_array<std::string_view>({"search_document", "search_query", "classification", "clustering"});
  std::string type;
  if (!body.Get("input_type", type)) {
    if (body.ok() && request.dialect == EmbedDialect::kCohere) body.Reject("input_type", "is required");
    return;
  }
  if (std::ranges::find(kTypes, type) == kTypes.end()) {
    return body.Reject("input_type",
                       "must be \"search_document\", \"search_query\", \"classification\" or \"clustering\"",
                       ErrorCode::kUnsupported);
  }
  request.shared.prompt_name = type;
}

}  // namespace

void GetTruncation(Fields& body, Overflow& overflow, bool& keep_end) {
  const Json* value = body.Find("truncate");
  if (value == nullptr) return;
  if (value->is_boolean()) {
    overflow = value->get<bool>() ? Overflow::kTruncate : Overflow::kRefuse;
    return;
  }
  const std::string word = value->is_string() ? AsciiLower(value->get<std::string>()) : "";
  if (word != "none" && word != "start" && word != "end") {
    return body.Reject("truncate", R"(must be "NONE", "START" or "END")");
  }
  overflow = word == "none" ? Overflow::kRefuse : Overflow::kTruncate;
  keep_end = word == "start";
}

void GetCohereBody(Fields& body, EmbedRequest& request) {
  GetCohereTexts(body, request);
  if (body.ok()) GetInputType(body, request);
  if (body.ok()) GetVectorTypes(body, request);
  int32_t dimensions = 0;
  bool keep_end = false;
  body.Get("output_dimension", dimensions, 1);
  GetTruncation(body, request.overflow, keep_end);
  for (EmbedPrompt& prompt : request.inputs) {
    prompt.dimensions = dimensions;
    prompt.keep_end = keep_end;
  }
  for (const char* name : {"images", "max_tokens"}) {
    if (HasValue(body, name)) body.Reject(name, "is not supported", ErrorCode::kUnsupported);
  }
}

std::string EncodeCohereEmbed(const EmbedRequest& request, const EmbedResult& result) {
  const bool flat = request.dialect == EmbedDialect::kCohereOld && !request.by_type;
  std::string out = fmt::format(R"({{"id":"{}","embeddings":{})", RandomId("embed-"), flat ? "" : "{");
  for (const VectorType type : request.types) {
    if (!flat) {
      out += fmt::format(R"({}"{}":)", type == request.types.front() ? "" : ",", VectorTypeName(type));
    }
    out += '[';
    for (size_t i = 0; i < result.vectors.size(); ++i) {
      if (i > 0) out += ',';
      AppendVector(out, result.vectors[i], type);
    }
    out += ']';
  }
  Json texts = Json::array();
  for (const EmbedPrompt& prompt : request.inputs) texts.push_back(prompt.text);
  const Json meta = {{"api_version", {{"version", request.dialect == EmbedDialect::kCohere ? "2" : "1"}}},
                     {"billed_units", {{"input_tokens", result.prompt_tokens}}}};
  return out + fmt::format(R"({},"texts":{},"meta":{},"response_type":"{}"}})", flat ? "" : "}",
                           DumpJson(texts), DumpJson(meta),
                           flat ? "embeddings_floats" : "embeddings_by_type");
}

std::string CohereErrorBody(const Error& error) { return DumpJson(Json{{"message", error.message}}); }

}  // namespace quire::api
