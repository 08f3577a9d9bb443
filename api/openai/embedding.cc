#include "api/openai/embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/limits.h"
#include "api/json/body.h"
#include "api/json/copy_budget.h"
#include "api/json/option_fields.h"
#include "api/json/read.h"
#include "api/json/text.h"
#include "api/openai/cohere_embed.h"
#include "api/openai/unsupported_fields.h"

namespace quire::api {
namespace {

bool IsTokenId(const Json& value) {
  const auto id = AsInteger(value);
  return id && *id >= 0 && *id <= std::numeric_limits<TokenId>::max();
}

bool IsTokenList(const Json& value) {
  return value.is_array() && !value.empty() && std::ranges::all_of(value, IsTokenId);
}

std::vector<TokenId> TokensOf(const Json& list) {
  std::vector<TokenId> tokens;
  tokens.reserve(list.size());
  for (const Json& id : list) tokens.push_back(static_cast<TokenId>(*AsInteger(id)));
  return tokens;
}

// {"text": "..."} alone, as Jina's clients send texts; null for everything else.
const Json* TextMember(const Json& value) {
  if (!value.is_object() || value.size() != 1) return nullptr;
  const auto text = value.find("text");
  return text != value.end() && text->is_string() ? &*text : nullptr;
}

// A text; where the dialect is strict also token ids or an object with a text.
std::optional<EmbedPrompt> PromptOf(const Json& value, bool strict) {
  if (value.is_string()) return EmbedPrompt{TakeText(value)};
  if (!strict) return std::nullopt;
  if (IsTokenList(value)) return EmbedPrompt{"", TokensOf(value)};
  const Json* const text = TextMember(value);
  return text == nullptr ? std::nullopt : std::optional(EmbedPrompt{TakeText(*text)});
}

// Texts or token ids, at least one.
bool IsStrict(EmbedDialect dialect) {
  return dialect == EmbedDialect::kOpenAi || dialect == EmbedDialect::kLlamaServer ||
         dialect == EmbedDialect::kTei;
}

bool IsCohere(EmbedDialect dialect) {
  return dialect == EmbedDialect::kCohere || dialect == EmbedDialect::kCohereOld;
}

void GetInput(Fields& body, EmbedRequest& request) {
  const bool strict = IsStrict(request.dialect);
  const std::string_view name = request.field;
  const Json* input = body.Find(name);
  if (input == nullptr) {
    if (strict) body.Reject(name, "is required");
    return;
  }
  if (auto one = PromptOf(*input, strict)) {
    request.one_text = true;
    const bool none = one->text.empty() && one->tokens.empty();
    if (none && strict) body.Reject(name, "must not be empty");
    if (!none) request.inputs.push_back(*std::move(one));
    return;
  }
  const char* allowed =
      strict ? "must be a string, an array of strings, an array of token ids or an array of token id arrays"
             : "must be of type string or array of strings";
  if (!input->is_array()) return body.Reject(name, allowed);
  if (input->empty() && strict) return body.Reject(name, "must not be empty");
  if (input->size() > kEmbedInputsMax) {
    return body.Reject(name, fmt::format("must have at most {} texts", kEmbedInputsMax));
  }
  request.inputs.reserve(input->size());
  for (const Json& value : *input) {
    auto prompt = PromptOf(value, strict);
    if (!prompt) return body.Reject(name, allowed);
    request.inputs.push_back(*std::move(prompt));
  }
}

void GetPrompt(Fields& body, EmbedRequest& request) {
  EmbedPrompt prompt;
  request.one_text = true;
  prompt.normalize = false;
  body.Take("prompt", prompt.text);
  if (!prompt.text.empty()) request.inputs.push_back(std::move(prompt));
}

// OpenAI's name, and Jina's.
void GetEncodingFormat(Fields& body, EmbedRequest& request) {
  for (const char* name : {"encoding_format", "embedding_type"}) {
    std::string format;
    if (!body.Get(name, format)) continue;
    const auto type = VectorTypeOf(format);
    if (!type) return body.Reject(name, R"(must be "float", "base64", "binary" or "ubinary")");
    request.types = {*type};
  }
}

void GetDimensions(Fields& body, EmbedRequest& request) {
  int32_t dimensions = 0;
  body.Get("dimensions", dimensions, IsStrict(request.dialect) ? 1 : 0);
  for (EmbedPrompt& prompt : request.inputs) prompt.dimensions = dimensions;
}

// The prefix of the model's that `key` names.
void GetPrefix(Fields& body, std::string_view key, EmbedRequest& request) {
  std::string& name = request.shared.prompt_name;
  body.Get(key, name);
  CopyBudget copies(body);
  copies.Share(key, name.size(), request.inputs.size(), "for all texts");
  for (EmbedPrompt& prompt : request.inputs) {
    prompt.prompt_required = true;
    if (!name.empty() && !prompt.tokens.empty()) {
      return body.Reject(key, "needs texts, not token ids", ErrorCode::kUnsupported);
    }
  }
}

// What other servers of this dialect add: "truncate", "input_type" for a prefix of the model's, and whether
// vectors are of length 1.
void GetOpenAiExtras(Fields& body, EmbedRequest& request) {
  bool keep_end = false, normalize = true;
  GetTruncation(body, request.overflow, keep_end);
  body.Get("normalized", normalize);
  for (EmbedPrompt& prompt : request.inputs) {
    prompt.keep_end = keep_end;
    prompt.normalize = normalize;
  }
  GetPrefix(body, body.Find("input_type") != nullptr ? "input_type" : "task", request);  // as Jina has it
}

// As text-embeddings-inference has them.
void GetTeiFields(Fields& body, EmbedRequest& request) {
  bool truncate = false, normalize = true;
  std::string direction = "right";
  body.Get("truncate", truncate);
  body.Get("normalize", normalize);
  body.Get("truncation_direction", direction);
  direction = AsciiLower(direction);
  if (direction != "left" && direction != "right") {
    return body.Reject("truncation_direction", R"(must be "Left" or "Right")");
  }
  if (truncate) request.overflow = Overflow::kTruncate;
  for (EmbedPrompt& prompt : request.inputs) {
    prompt.keep_end = direction == "left";
    prompt.normalize = normalize;
  }
  GetPrefix(body, "prompt_name", request);
}

// -1 = unchanged, 2 = to length 1.
void GetNormalization(Fields& body, EmbedRequest& request) {
  constexpr std::string_view kName = "embd_normalize";
  int32_t norm = 2;
  body.Get(kName, norm);
  if (norm != -1 && norm != 2)
    body.Reject(kName, "must be -1 or 2; others are not supported", ErrorCode::kUnsupported);
  for (EmbedPrompt& prompt : request.inputs) prompt.normalize = norm == 2;
}

void GetBody(Fields& body, EmbedRequest& request) {
  const bool llama_server = request.dialect == EmbedDialect::kLlamaServer;
  const bool tei = request.dialect == EmbedDialect::kTei;
  if (tei) request.field = "inputs";
  if (llama_server || tei) {
    request.model = GetModelIfAny(body);
    if (llama_server && !body.Has(request.field)) request.field = "content";
  } else {
    request.model = GetModel(body);
  }
  const bool cohere = IsCohere(request.dialect);
  if (cohere) {
    GetCohereBody(body, request);
  } else if (request.dialect == EmbedDialect::kOllamaLegacy) {
    GetPrompt(body, request);
  } else {
    GetInput(body, request);
    GetDimensions(body, request);
  }
  if (llama_server) GetNormalization(body, request);
  if (IsStrict(request.dialect)) request.overflow = Overflow::kRefuse;
  if (request.dialect == EmbedDialect::kOpenAi) {
    GetEncodingFormat(body, request);
    GetOpenAiExtras(body, request);
  } else if (tei) {
    GetTeiFields(body, request);
  } else if (!llama_server && !cohere) {
    bool truncate = true;
    body.Get("truncate", truncate);
    if (!truncate) request.overflow = Overflow::kRefuse;
  }
  request.keep_alive = GetKeepAlive(body);
  GetOptions(body, request.options, request.unknown_options);
  request.cache_salt = GetCacheSalt(body);
  if (cohere || tei) openai::AddUnread(body, request.unknown_options);
  if (request.dialect != EmbedDialect::kOpenAi) return;
  openai::RefuseUnsupported(body, openai::Route::kEmbeddings);
  openai::AddUnread(body, request.unknown_options);
}

// ---- replies ----

std::string EncodeOpenAi(const EmbedRequest& request, const EmbedResult& result) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < result.vectors.size(); ++i) {
    out += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":)", i > 0 ? "," : "", i);
    AppendVector(out, result.vectors[i], request.types.front());
    out += '}';
  }
  return out + fmt::format(R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                           DumpJson(Json(request.model)), result.prompt_tokens, result.prompt_tokens);
}

// One vector of each text, in a list as of a model that has one for every token.
std::string EncodeLlamaServer(const EmbedResult& result) {
  std::string out = "[";
  for (size_t i = 0; i < result.vectors.size(); ++i) {
    out += fmt::format(R"({}{{"index":{},"embedding":[)", i > 0 ? "," : "", i);
    AppendNumbers(out, result.vectors[i]);
    out += "]}";
  }
  return out + ']';
}

// An array of arrays of numbers.
void AppendVectors(std::string& out, const EmbedResult& result) {
  out += '[';
  for (size_t i = 0; i < result.vectors.size(); ++i) {
    if (i > 0) out += ',';
    AppendNumbers(out, result.vectors[i]);
  }
  out += ']';
}

std::string EncodeOllama(const EmbedRequest& request, const EmbedResult& result) {
  std::string out = fmt::format(R"({{"model":{},"embeddings":)", DumpJson(Json(request.model)));
  AppendVectors(out, result);
  // Clients divide by durations and take zero for "not measured".
  return out + fmt::format(R"(,"total_duration":{},"load_duration":{},"prompt_eval_count":{}}})",
                           std::max<int64_t>(result.total.count(), 1),
                           std::max<int64_t>(result.load.count(), 1), result.prompt_tokens);
}

}  // namespace

Request EmbedRequest::Common(const Options& defaults) const {
  Request request;
  request.params = Resolve(Overlay(defaults, options));
  request.overflow = overflow;
  request.client.cache_salt = cache_salt;
  return request;
}

Request EmbedRequest::At(size_t i, const Options& defaults) const {
  Request request = Common(defaults);
  EmbedPrompt prompt = inputs[i];
  if (!shared.query.empty()) prompt.text = shared.query;
  prompt.instruction = shared.instruction;
  prompt.prompt_name = shared.prompt_name;
  request.prompt = std::move(prompt);
  return request;
}

std::string EmbedRequest::NameOf(size_t i) const {
  if (dialect == EmbedDialect::kOllamaLegacy) return "prompt";
  return one_text ? std::string(field) : fmt::format("{}[{}]", field, i);
}

Result<EmbedRequest> ParseEmbed(EmbedDialect dialect, std::string_view text) {
  auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  EmbedRequest request;
  request.dialect = dialect;
  FirstError error;
  Fields body(*json, "", error);
  GetBody(body, request);
  if (error) return std::unexpected(std::move(*error));
  return request;
}

std::string EncodeEmbed(const EmbedRequest& request, const EmbedResult& result) {
  if (request.dialect == EmbedDialect::kOpenAi) return EncodeOpenAi(request, result);
  if (request.dialect == EmbedDialect::kOllama) return EncodeOllama(request, result);
  if (request.dialect == EmbedDialect::kLlamaServer) return EncodeLlamaServer(result);
  if (IsCohere(request.dialect)) return EncodeCohereEmbed(request, result);
  std::string out;
  if (request.dialect == EmbedDialect::kTei) {
    AppendVectors(out, result);
    return out;
  }
  out = R"({"embedding":)";
  AppendNumbers(out, result.vectors.empty() ? std::span<const float>() : result.vectors.front());
  return out + '}';
}

}  // namespace quire::api
