#include "api/openai/rerank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/limits.h"
#include "api/base/random_id.h"
#include "api/json/body.h"
#include "api/json/copy_budget.h"
#include "api/json/option_fields.h"
#include "api/json/read.h"
#include "api/json/text.h"
#include "api/openai/unsupported_fields.h"

namespace quire::api {
namespace {

constexpr std::string_view kForAllPairs = "for all documents";

void AddDocument(std::string document, RerankRequest& request) {
  request.pairs.inputs.push_back({.text = {}, .rank = true, .document = std::move(document)});
}

// A text, or an object with one.
std::optional<std::string> DocumentOf(const Json& value) {
  if (value.is_string()) return TakeText(value);
  if (!value.is_object()) return std::nullopt;
  const auto text = value.find("text");
  return text != value.end() && text->is_string() ? std::optional(TakeText(*text)) : std::nullopt;
}

const Json* FindTexts(Fields& body, std::string_view name) {
  const Json* list = body.FindArray(name);
  if (list == nullptr) {
    if (!body.Has(name)) body.Reject(name, "is required");
    return nullptr;
  }
  if (list->empty()) body.Reject(name, "must not be empty");
  if (list->size() > kEmbedInputsMax) {
    body.Reject(name, fmt::format("must have at most {} texts", kEmbedInputsMax));
  }
  return body.ok() ? list : nullptr;
}

void GetDocuments(Fields& body, CopyBudget& copies, RerankRequest& request) {
  std::string& query = request.pairs.shared.query;
  if (!body.Take("query", query) && body.ok()) body.Reject("query", "is required");
  if (query.empty()) body.Reject("query", "must not be empty");
  request.texts = request.dialect == RerankDialect::kJina && body.Has("texts");
  request.pairs.field = request.texts ? "texts" : "documents";
  const Json* documents = FindTexts(body, request.pairs.field);
  if (documents == nullptr) return;
  copies.Share("query", query.size(), documents->size(), kForAllPairs);
  request.pairs.inputs.reserve(documents->size());
  for (const Json& value : *documents) {
    auto document = DocumentOf(value);
    if (!document) {
      return body.Reject(request.pairs.field, "must be an array of strings or of objects with a \"text\"");
    }
    AddDocument(*std::move(document), request);
  }
}

// Texts of a field that is a text or an array of texts.
std::vector<std::string> TextsOf(Fields& body, std::string_view name) {
  const Json* value = body.Find(name);
  if (value == nullptr) {
    body.Reject(name, "is required");
    return {};
  }
  if (value->is_string()) return {TakeText(*value)};
  const Json* list = FindTexts(body, name);
  std::vector<std::string> texts;
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    if (!(*list)[i].is_string()) {
      body.Reject(name, "must be a string or an array of strings");
      return {};
    }
    texts.push_back(TakeText((*list)[i]));
  }
  return texts;
}

// One text with each of several, or as many with as many.
void GetTexts(Fields& body, CopyBudget& copies, RerankRequest& request) {
  std::vector<std::string> first = TextsOf(body, "text_1"), second = TextsOf(body, "text_2");
  request.pairs.field = "text_2";
  if (!body.ok()) return;
  if (first.size() != 1 && first.size() != second.size()) {
    return body.Reject("text_2", "must have as many texts as text_1, or text_1 must be one text");
  }
  EmbedRequest& pairs = request.pairs;
  pairs.inputs.reserve(second.size());
  for (std::string& text : second) AddDocument(std::move(text), request);
  if (first.size() == 1) {
    copies.Share("text_1", first.front().size(), second.size(), kForAllPairs);
    pairs.shared.query = std::move(first.front());
  } else {
    for (size_t i = 0; i < first.size(); ++i) pairs.inputs[i].text = std::move(first[i]);
  }
}

// What all pairs have in common.
void GetOfPairs(Fields& body, CopyBudget& copies, EmbedRequest& pairs) {
  const std::string_view name = body.Has("instruct") ? "instruct" : "instruction";
  std::string& instruction = pairs.shared.instruction;
  int32_t tokens_max = 0;
  body.Get(name, instruction);
  copies.Share(name, instruction.size(), pairs.inputs.size(), kForAllPairs);
  body.Get("max_tokens_per_doc", tokens_max, 1);
  for (EmbedPrompt& pair : pairs.inputs) pair.document_tokens_max = tokens_max;
}

void GetRerankBody(Fields& body, RerankRequest& request) {
  EmbedRequest& pairs = request.pairs;
  pairs.dialect = EmbedDialect::kOpenAi;
  if (request.dialect == RerankDialect::kJina) {
    pairs.model = GetModelIfAny(body);
  } else {
    pairs.model = GetModel(body);
  }
  CopyBudget copies(body);
  if (request.dialect == RerankDialect::kScore) {
    GetTexts(body, copies, request);
  } else {
    GetDocuments(body, copies, request);
    body.Get("top_n", request.top_n, int64_t{1});
    body.Get(request.texts ? "return_text" : "return_documents", request.return_documents);
  }
  body.Get("raw_scores", request.raw_scores);
  bool truncate = true;
  body.Get("truncate", truncate);
  pairs.overflow = truncate ? Overflow::kTruncate : Overflow::kRefuse;
  GetOfPairs(body, copies, pairs);
  for (const char* name : {"max_chunks_per_doc", "rank_fields", "truncate_prompt_tokens"}) {
    if (HasValue(body, name)) body.Reject(name, "is not supported", ErrorCode::kUnsupported);
  }
  std::string direction = "right";
  body.Get("truncation_direction", direction);
  if (AsciiLower(direction) != "right") {
    body.Reject("truncation_direction", R"(must be "Right"; others are not supported)",
                ErrorCode::kUnsupported);
  }
  pairs.keep_alive = GetKeepAlive(body);
  GetOptions(body, pairs.options, pairs.unknown_options);
  pairs.cache_salt = GetCacheSalt(body);
  openai::AddUnread(body, pairs.unknown_options);
}

double Shown(const RerankRequest& request, float score) {
  return request.raw_scores ? static_cast<double>(score) : 1 / (1 + std::exp(-static_cast<double>(score)));
}

struct Ranked {
  size_t index = 0;
  float score = 0;
};

std::vector<Ranked> Rank(const RerankRequest& request, const EmbedResult& result) {
  std::vector<Ranked> ranked;
  ranked.reserve(result.vectors.size());
  for (size_t i = 0; i < result.vectors.size(); ++i) ranked.push_back({i, result.vectors[i].front()});
  std::ranges::stable_sort(ranked, std::ranges::greater(), &Ranked::score);
  if (request.top_n > 0) ranked.resize(std::min(ranked.size(), static_cast<size_t>(request.top_n)));
  return ranked;
}

Json UsageOf(const EmbedResult& result) {
  return {{"prompt_tokens", result.prompt_tokens}, {"total_tokens", result.prompt_tokens}};
}

std::string EncodeScores(const RerankRequest& request, const EmbedResult& result, int64_t created) {
  Json data = Json::array();
  for (size_t i = 0; i < result.vectors.size(); ++i) {
    data.push_back(
        Json{{"index", i}, {"object", "score"}, {"score", Shown(request, result.vectors[i].front())}});
  }
  const Json reply = {{"id", RandomId("score-")},     {"object", "list"},        {"created", created},
                      {"model", request.pairs.model}, {"data", std::move(data)}, {"usage", UsageOf(result)}};
  return DumpJson(reply);
}

std::string EncodeTexts(const RerankRequest& request, const std::vector<Ranked>& ranked) {
  Json reply = Json::array();
  for (const Ranked& one : ranked) {
    Json entry = {{"index", one.index}, {"score", Shown(request, one.score)}};
    if (request.return_documents) entry["text"] = request.pairs.inputs[one.index].document;
    reply.push_back(std::move(entry));
  }
  return DumpJson(reply);
}

}  // namespace

Result<RerankRequest> ParseRerank(RerankDialect dialect, std::string_view text) {
  auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  RerankRequest request;
  request.dialect = dialect;
  FirstError error;
  Fields body(*json, "", error);
  GetRerankBody(body, request);
  if (error) return std::unexpected(std::move(*error));
  return request;
}

std::string EncodeRerank(const RerankRequest& request, const EmbedResult& result, int64_t created) {
  if (request.dialect == RerankDialect::kScore) return EncodeScores(request, result, created);
  const std::vector<Ranked> ranked = Rank(request, result);
  if (request.texts) return EncodeTexts(request, ranked);
  Json results = Json::array();
  for (const Ranked& one : ranked) {
    Json entry = {{"index", one.index}, {"relevance_score", Shown(request, one.score)}};
    if (request.return_documents) entry["document"] = {{"text", request.pairs.inputs[one.index].document}};
    results.push_back(std::move(entry));
  }
  Json reply = {{"id", RandomId("rerank-")}, {"results", std::move(results)}};
  if (request.dialect == RerankDialect::kCohere) {
    reply["meta"] = {{"api_version", {{"version", "2"}}}, {"billed_units", {{"search_units", 1}}}};
  } else {
    reply["object"] = "list";
    reply["model"] = request.pairs.model;
    reply["usage"] = UsageOf(result);
  }
  return DumpJson(reply);
}

}  // namespace quire::api
