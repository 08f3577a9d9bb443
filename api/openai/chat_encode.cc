#include <fmt/format.h>

#include <algorithm>
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

Json Chunk(const ReplyHead& head, size_t index, Json delta, Json logprobs, Json finish_reason) {
  Json choice = {{"index", index},
                 {"delta", std::move(delta)},
                 {"logprobs", std::move(logprobs)},
                 {"finish_reason", std::move(finish_reason)}};
  Json chunk = Head(head, "chat.completion.chunk");
  chunk["choices"] = Json::array({std::move(choice)});
  return chunk;
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
  return {{"id", model.id},
          {"object", "model"},
          {"created", Seconds(model.created)},
          {"owned_by", model.owned_by}};
}

}  // namespace

void UsageOfChoices::Add(const Usage& usage, bool first_of_prompt) {
  output_tokens += usage.output_tokens;
  drafted_tokens += usage.draft.drafted;
  accepted_tokens += usage.draft.accepted();
  if (!first_of_prompt) return;
  prompt_tokens += usage.prompt_tokens;
  cached_tokens += usage.cached_tokens;
}

ChatEncoder::ChatEncoder(ReplyHead head) : head_(std::move(head)), choices_(head_.choices) {}

std::string ChatEncoder::OnEvent(size_t choice, const Event& event) {
  Count(choices_.at(choice).so_far, event);
  if (const auto* delta = std::get_if<TextDelta>(&event)) return OnText(choice, *delta);
  if (const auto* finished = std::get_if<Finished>(&event)) return OnFinished(choice, *finished);
  if (const auto* failed = std::get_if<Failed>(&event)) return StreamError(failed->error);
  return {};
}

std::string ChatEncoder::OnText(size_t index, const TextDelta& delta) {
  Choice& choice = choices_.at(index);
  if (!head_.stream) {
    Append(choice.answer, delta);
    return {};
  }
  const bool due = head_.chunk_per_token && delta.tokens > 0;
  if (IsSilent(delta) && !due) return {};
  std::string out;
  Json logprobs = ChoiceLogprobs(delta.logprobs);
  for (Json& piece : DeltasOf(delta, !std::exchange(choice.role_sent, true), choice.calls_sent)) {
    Json chunk = Chunk(head_, index, std::move(piece), std::exchange(logprobs, nullptr), nullptr);
    AddUsage(chunk, head_, choice.so_far);
    out += ServerSentEvent(chunk);
  }
  choice.calls_sent += delta.tool_calls.size();
  return out;
}

std::string ChatEncoder::OnFinished(size_t index, const Finished& finished) {
  Choice& choice = choices_.at(index);
  choice.finished = finished.reason;
  usage_.Add(finished.usage, index % head_.choices_per_prompt == 0);
  const bool all = std::ranges::all_of(choices_, [](const Choice& one) { return one.finished.has_value(); });
  if (!head_.stream) return all ? Whole() : std::string();
  std::string out;
  if (!std::exchange(choice.role_sent, true)) {
    out = ServerSentEvent(Chunk(head_, index, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr));
  }
  Json chunk =
      Chunk(head_, index, Json::object(), nullptr, FinishName(finished.reason, choice.calls_sent > 0));
  AddUsage(chunk, head_, finished.usage);
  out += ServerSentEvent(chunk);
  return all ? out + EndOfStream(head_, "chat.completion.chunk", usage_) : out;
}

std::string ChatEncoder::Whole() const {
  Json list = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    Json entry = {{"index", i},
                  {"message", MessageOf(choice.answer)},
                  {"logprobs", ChoiceLogprobs(choice.answer.logprobs)},
                  {"finish_reason", FinishName(*choice.finished, !choice.answer.tool_calls.empty())}};
    list.push_back(std::move(entry));
  }
  Json body = Head(head_, "chat.completion");
  body["choices"] = std::move(list);
  body["usage"] = EncodeUsage(usage_);
  return DumpJson(body);
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
