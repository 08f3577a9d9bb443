#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "api/encode_parts.h"
#include "api/json_read.h"
#include "api/openai.h"
#include "api/openai_message.h"

namespace quire::api::openai {
namespace {

constexpr std::string_view kFingerprint = "fp_quire_" QUIRE_VERSION;

int64_t Seconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

Json Head(const ReplyHead& head, std::string_view object) {
  return {{"id", head.id},
          {"object", object},
          {"created", Seconds(head.created)},
          {"model", head.model},
          {"system_fingerprint", kFingerprint}};
}

Json EncodeUsage(const Usage& usage) {
  const int64_t total = int64_t{usage.prompt_tokens} + usage.output_tokens;
  Json details = Json::object();
  details["cached_tokens"] = usage.cached_tokens;
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.output_tokens},
          {"total_tokens", total},
          {"prompt_tokens_details", std::move(details)}};
}

Json ChoiceLogprobs(const std::vector<TokenLogprob>& logprobs) {
  if (logprobs.empty()) return nullptr;
  Json object = Json::object();
  object["content"] = EncodeLogprobs(logprobs);
  object["refusal"] = nullptr;
  return object;
}

std::string ServerSentEvent(const Json& data) { return "data: " + DumpJson(data) + "\n\n"; }

std::string Chunk(const ReplyHead& head, Json delta, Json logprobs, Json finish_reason) {
  Json choice = {{"index", 0},
                 {"delta", std::move(delta)},
                 {"logprobs", std::move(logprobs)},
                 {"finish_reason", std::move(finish_reason)}};
  Json chunk = Head(head, "chat.completion.chunk");
  chunk["choices"] = Json::array({std::move(choice)});
  return ServerSentEvent(chunk);
}

std::string_view ErrorType(const Error& error) {
  switch (HttpStatus(error.code)) {
    case 400:
      return "invalid_request_error";
    case 404:
      return "not_found_error";
    default:
      return "api_error";
  }
}

Json EncodeError(const Error& error) {
  Json inner = {{"message", error.message}, {"type", ErrorType(error)}};
  inner["param"] = error.field.empty() ? Json(nullptr) : Json(error.field);
  inner["code"] =
      error.code == ErrorCode::kContextLengthExceeded ? Json("context_length_exceeded") : Json(nullptr);
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

ChatEncoder::ChatEncoder(ReplyHead head) : head_(std::move(head)) {}

std::string ChatEncoder::OnEvent(const Event& event) {
  if (const auto* delta = std::get_if<TextDelta>(&event)) return OnText(*delta);
  if (const auto* finished = std::get_if<Finished>(&event)) return OnFinished(*finished);
  if (const auto* failed = std::get_if<Failed>(&event)) return StreamError(failed->error);
  return {};
}

std::string ChatEncoder::OnText(const TextDelta& delta) {
  if (!head_.stream) {
    Append(answer_, delta);
    return {};
  }
  if (IsSilent(delta)) return {};
  std::string out;
  Json logprobs = ChoiceLogprobs(delta.logprobs);
  for (Json& piece : DeltasOf(delta, !std::exchange(role_sent_, true), calls_sent_)) {
    out += Chunk(head_, std::move(piece), std::exchange(logprobs, nullptr), nullptr);
  }
  calls_sent_ += delta.tool_calls.size();
  return out;
}

std::string ChatEncoder::OnFinished(const Finished& finished) {
  if (!head_.stream) {
    Json choice = {{"index", 0},
                   {"message", MessageOf(answer_)},
                   {"logprobs", ChoiceLogprobs(answer_.logprobs)},
                   {"finish_reason", FinishName(finished.reason, !answer_.tool_calls.empty())}};
    Json body = Head(head_, "chat.completion");
    body["choices"] = Json::array({std::move(choice)});
    body["usage"] = EncodeUsage(finished.usage);
    return DumpJson(body);
  }
  std::string out;
  if (!std::exchange(role_sent_, true)) {
    out += Chunk(head_, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
  }
  out += Chunk(head_, Json::object(), nullptr, FinishName(finished.reason, calls_sent_ > 0));
  if (head_.include_usage) {
    Json chunk = Head(head_, "chat.completion.chunk");
    chunk["choices"] = Json::array();
    chunk["usage"] = EncodeUsage(finished.usage);
    out += ServerSentEvent(chunk);
  }
  return out + "data: [DONE]\n\n";
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
