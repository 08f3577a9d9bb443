#include "api/llama_server/tokenize.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/utf8.h"
#include "api/json/body.h"
#include "api/json/encode_parts.h"
#include "api/json/read.h"
#include "api/json/tokens.h"

namespace quire::api {
namespace {

Json EncodePiece(const TokenCandidate& token) {
  Json piece = token.bytes;
  if (!IsValidUtf8(token.bytes)) {
    piece = Json::array();
    for (const char byte : token.bytes) piece.push_back(static_cast<unsigned char>(byte));
  }
  Json entry = {{"id", token.id}};
  entry["piece"] = std::move(piece);
  return entry;
}

// {"tokens": [id]}. There may be millions: no JSON value is made of them.
std::string IdsBody(const std::vector<TokenId>& ids) {
  constexpr size_t kBytesPerId = 7;  // usually enough, with the comma
  std::string body = R"({"tokens":[)";
  body.reserve(body.size() + ids.size() * kBytesPerId);
  for (const TokenId id : ids) {
    const fmt::format_int digits(id);
    body.append(digits.data(), digits.size());
    body += ',';
  }
  if (!ids.empty()) body.pop_back();
  body += "]}";
  return body;
}

// The text and the ids that /tokenize and /detokenize take, and the model, which both may leave out.
template <class Parsed, class GetRest>
Result<Parsed> Parse(std::string_view text, GetRest get_rest) {
  auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  Parsed parsed;
  FirstError error;
  Fields body(*json, "", error);
  parsed.model = GetModelIfAny(body);
  get_rest(body, parsed);
  if (error) return std::unexpected(std::move(*error));
  return parsed;
}

Request PromptRequest(Prompt prompt) {
  Request request;
  request.prompt = std::move(prompt);
  request.prompt_only = true;
  return request;
}

}  // namespace

Result<TokenizeRequest> ParseTokenize(std::string_view body) {
  return Parse<TokenizeRequest>(body, [](Fields& fields, TokenizeRequest& request) {
    if (!fields.Take("content", request.content)) {
      fields.Reject("content", "is required and must be of type string");
    }
    fields.Get("add_special", request.add_special);
    fields.Get("parse_special", request.parse_special);
    fields.Get("with_pieces", request.with_pieces);
  });
}

Result<DetokenizeRequest> ParseDetokenize(std::string_view body) {
  return Parse<DetokenizeRequest>(body, [](Fields& fields, DetokenizeRequest& request) {
    const Json* list = fields.Find("tokens");
    auto tokens = list == nullptr ? std::nullopt : AsTokenIds(*list);
    if (!tokens) return fields.Reject("tokens", "is required and must be an array of token ids");
    request.tokens = *std::move(tokens);
  });
}

Request ToRequest(TokenizeRequest tokenize) {
  Prompt prompt = RawPrompt{std::move(tokenize.content), tokenize.add_special, tokenize.parse_special};
  Request request = PromptRequest(std::move(prompt));
  request.return_context = true;
  request.return_prompt_text = tokenize.with_pieces;
  request.logprobs = tokenize.with_pieces;
  return request;
}

Request ToRequest(DetokenizeRequest detokenize) {
  Request request = PromptRequest(TokenPrompt{std::move(detokenize.tokens)});
  request.return_prompt_text = true;
  return request;
}

std::string TokenizeEncoder::OnDelta(const TextDelta& delta, const EventContext&) {
  Append(text_, delta);
  return {};
}

std::string TokenizeEncoder::OnFinished(const Finished& finished, const EventContext&) {
  if (shape_ == Shape::kIds) return IdsBody(finished.context);
  Json body = Json::object();
  if (shape_ == Shape::kText || shape_ == Shape::kPrompt) {
    body[shape_ == Shape::kText ? "content" : "prompt"] = text_.text;
    return DumpJson(body);
  }
  Json tokens = Json::array();
  for (const TokenLogprob& token : text_.logprobs) tokens.push_back(EncodePiece(token.chosen));
  body["tokens"] = std::move(tokens);
  return DumpJson(body);
}

}  // namespace quire::api
