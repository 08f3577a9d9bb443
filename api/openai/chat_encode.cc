#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/encode_parts.h"
#include "api/json/read.h"
#include "api/openai/chat.h"
#include "api/openai/message.h"
#include "api/openai/parts.h"

namespace quire::api::openai {
namespace {

Json ChoiceLogprobs(const std::vector<TokenLogprob>& logprobs) {
  if (logprobs.empty()) return nullptr;
  Json object = Json::object();
  object["content"] = EncodeLogprobs(logprobs);
  object["refusal"] = nullptr;
  return object;
}

Json ChunkChoice(size_t index, Json delta, Json logprobs, Json finish_reason) {
  return {{"index", index},
          {"delta", std::move(delta)},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", std::move(finish_reason)}};
}

std::string_view ErrorType(const Error& error) {
  switch (HttpStatus(error.code)) {
    case 400:
    case 401:
      return "invalid_request_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return "api_error";
  }
}

Json ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kContextLengthExceeded:
      return "context_length_exceeded";
    case ErrorCode::kNotFound:
      return "model_not_found";
    case ErrorCode::kUnauthorized:
      return "invalid_api_key";
    case ErrorCode::kRateLimited:
      return "rate_limit_exceeded";
    default:
      return nullptr;
  }
}

Json EncodeError(const Error& error) {
  Json inner = {{"message", error.message}, {"type", ErrorType(error)}};
  inner["param"] = error.field.empty() ? Json(nullptr) : Json(error.field);
  inner["code"] = ErrorCodeName(error.code);
  Json body = Json::object();
  body["error"] = std::move(inner);
  return body;
}

Json Encode(const ModelEntry& model) {
  Json entry = {{"id", model.id},
                {"object", "model"},
                {"created", Seconds(model.created)},
                {"owned_by", model.owned_by}};
  if (model.context_length > 0) {
    entry["context_length"] = model.context_length;
    entry["max_model_len"] = model.context_length;
  }
  if (!model.capabilities.empty()) entry["capabilities"] = model.capabilities;
  return entry;
}

}  // namespace

ChatEncoder::ChatEncoder(ReplyHead head)
    : ChoicesEncoder(std::move(head), "chat.completion.chunk", "chat.completion") {}

std::string ChatEncoder::EncodeDelta(Choice& choice, const TextDelta& delta, bool due) {
  if (IsSilent(delta) && !due) return {};
  std::string out;
  Json logprobs = ChoiceLogprobs(delta.logprobs);
  for (Json& piece : DeltasOf(delta, !std::exchange(choice.role_sent, true), choice.calls_sent)) {
    out += Chunk(ChunkChoice(choice.index, std::move(piece), std::exchange(logprobs, nullptr), nullptr),
                 &choice);
  }
  choice.calls_sent += delta.tool_calls.size();
  return out;
}

Json ChatEncoder::EncodeNothing(const Choice& choice) {
  return ChunkChoice(choice.index, Json::object(), nullptr, nullptr);
}

std::string ChatEncoder::EncodeEnd(Choice& choice) {
  std::string out;
  if (!std::exchange(choice.role_sent, true)) {
    out =
        Chunk(ChunkChoice(choice.index, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr), nullptr);
  }
  const auto reason = FinishName(*choice.finished, choice.calls_sent > 0);
  return out + Chunk(ChunkChoice(choice.index, Json::object(), nullptr, reason), &choice);
}

Json ChatEncoder::EncodeWhole(Choice& choice) {
  return {{"index", choice.index},
          {"message", MessageOf(choice.answer)},
          {"logprobs", ChoiceLogprobs(choice.answer.logprobs)},
          {"finish_reason", FinishName(*choice.finished, !choice.answer.tool_calls.empty())}};
}

// All choices have the same prompt; the first asked.
void ChatEncoder::AddToBody(Json& body) {
  if (head().prompt_logprobs < 0) return;
  body["prompt_logprobs"] = EncodePromptLogprobs(choices().front().answer.prompt, head().prompt_logprobs);
}

std::string ErrorBody(const Error& error) { return DumpJson(EncodeError(error)); }

std::string StreamError(const Error& error) { return ServerSentEvent(EncodeError(error)); }

std::string EncodeModels(const std::vector<ModelEntry>& models) {
  Json list = Json::array();
  for (const ModelEntry& model : models) list.push_back(Encode(model));
  const Json body = {{"object", "list"}, {"data", std::move(list)}};
  return DumpJson(body);
}

std::string EncodeModel(const ModelEntry& model) { return DumpJson(Encode(model)); }

}  // namespace quire::api::openai
