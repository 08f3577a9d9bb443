#include "api/llama_server/tokenize.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/utf8.h"
#include "api/json/body.h"
#include "api/json/encode_parts.h"
#include "api/json/read.h"
#include "api/json/tokens.h"
#include "api/llama_server/props.h"

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
std::string IdsBody(const std::vector<TokenId>& ids, std::string begin = "{") {
  constexpr size_t kBytesPerId = 7;  // usually enough, with the comma
  std::string body = std::move(begin) + R"("tokens":[)";
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
  bool is_chat = false;
  auto parsed = Parse<TokenizeRequest>(body, [&is_chat](Fields& fields, TokenizeRequest& request) {
    is_chat = fields.Has("messages");
    request.counts = is_chat || fields.Has("prompt");
    fields.Get("return_token_strs", request.with_pieces);
    if (is_chat) return;
    if (request.counts) {
      fields.Get("add_special_tokens", request.add_special = true);
      if (!fields.Take("prompt", request.content)) fields.Reject("prompt", "must be of type string");
      return;
    }
    if (!fields.Take("content", request.content)) {
      fields.Reject("content", "is required and must be of type string");
    }
    fields.Get("add_special", request.add_special);
    fields.Get("parse_special", request.parse_special);
    fields.Get("with_pieces", request.with_pieces);
  });
  if (!parsed || !is_chat) return parsed;
  auto chat = ParseApplyTemplate(body);
  if (!chat) return std::unexpected(std::move(chat.error()));
  parsed->chat = *std::move(chat);
  return parsed;
}

Result<DetokenizeRequest> ParseDetokenize(std::string_view body) {
  return Parse<DetokenizeRequest>(body, [](Fields& fields, DetokenizeRequest& request) {
    const Json* list = fields.Find("tokens");
    auto tokens = list == nullptr ? std::nullopt : AsTokenIds(*list);
    if (!tokens) return fields.Reject("tokens", "is required and must be an array of token ids");
    request.tokens = *std::move(tokens);
  });
}

Request ToRequest(TokenizeRequest tokenize, const ModelDefaults& defaults) {
  Request request;
  if (tokenize.chat) {
    request = ToRequest(*std::move(tokenize.chat), defaults);
  } else {
    request =
        PromptRequest(RawPrompt{std::move(tokenize.content), tokenize.add_special, tokenize.parse_special});
  }
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

// {"count", "max_model_len", "token_strs", "tokens"}
std::string TokenizeEncoder::Counted(const std::vector<TokenId>& ids) const {
  Json texts = with_pieces_ ? Json::array() : Json(nullptr);
  for (const TokenLogprob& token : text_.logprobs) texts.push_back(token.chosen.bytes);
  return IdsBody(ids, fmt::format(R"({{"count":{},"max_model_len":{},"token_strs":{},)", ids.size(), num_ctx_,
                                  DumpJson(texts)));
}

std::string TokenizeEncoder::OnFinished(const Finished& finished, const EventContext&) {
  if (shape_ == Shape::kCounted) return Counted(finished.context);
  if (shape_ == Shape::kIds) return IdsBody(finished.context);
  Json body = Json::object();
  if (shape_ == Shape::kText || shape_ == Shape::kPrompt) {
    if (shape_ == Shape::kText) body["content"] = text_.text;
    body["prompt"] = std::move(text_.text);
    return DumpJson(body);
  }
  Json tokens = Json::array();
  for (const TokenLogprob& token : text_.logprobs) tokens.push_back(EncodePiece(token.chosen));
  body["tokens"] = std::move(tokens);
  return DumpJson(body);
}

}  // namespace quire::api
