#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "api/anthropic.h"
#include "api/json_read.h"

namespace quire::api::anthropic {
namespace {

// `data` begins with its type, which is the event's name too.
std::string ServerSentEvent(const Json& data) {
  return fmt::format("event: {}\ndata: {}\n\n", data.at("type").get_ref<const std::string&>(),
                     DumpJson(data));
}

// As Anthropic counts: what came from the cache is not part of input_tokens.
Json EncodeUsage(int32_t prompt_tokens, int32_t cached_tokens, int32_t output_tokens) {
  return {{"input_tokens", prompt_tokens - cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached_tokens},
          {"output_tokens", output_tokens}};
}

Json EncodeUsage(const Usage& usage) {
  return EncodeUsage(usage.prompt_tokens, usage.cached_tokens, usage.output_tokens);
}

std::string_view StopReason(const Finished& finished) {
  if (finished.reason == FinishReason::kLength) return "max_tokens";
  return finished.stop_string.empty() ? "end_turn" : "stop_sequence";
}

Json StopSequence(const Finished& finished) {
  return finished.stop_string.empty() ? Json(nullptr) : Json(finished.stop_string);
}

Json Envelope(const ReplyHead& head) {
  return {{"id", head.id}, {"type", "message"}, {"role", "assistant"}, {"model", head.model}};
}

std::string MessageStart(const ReplyHead& head, const PromptReady& ready) {
  Json message = Envelope(head);
  message["content"] = Json::array();
  message["stop_reason"] = nullptr;
  message["stop_sequence"] = nullptr;
  message["usage"] = EncodeUsage(ready.prompt_tokens, ready.cached_tokens, 0);
  Json event = {{"type", "message_start"}};
  event["message"] = std::move(message);
  return ServerSentEvent(event);
}

std::string_view ErrorType(const Error& error) {
  switch (HttpStatus(error.code)) {
    case 400:
      return "invalid_request_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 503:
      return "overloaded_error";
    default:
      return "api_error";
  }
}

Json EncodeError(const Error& error) {
  Json body = {{"type", "error"}};
  body["error"] = {{"type", ErrorType(error)}, {"message", error.message}};
  return body;
}

}  // namespace

std::string MessagesEncoder::OnEvent(const Event& event) {
  if (const auto* ready = std::get_if<PromptReady>(&event)) {
    return head_.stream ? MessageStart(head_, *ready) : std::string();
  }
  if (const auto* delta = std::get_if<TextDelta>(&event)) return OnText(*delta);
  if (const auto* finished = std::get_if<Finished>(&event)) return OnFinished(*finished);
  return StreamError(std::get<Failed>(event).error);
}

std::string MessagesEncoder::OnText(const TextDelta& delta) {
  if (delta.text.empty()) return {};
  if (!head_.stream) {
    text_ += delta.text;
    return {};
  }
  std::string out;
  if (!std::exchange(block_open_, true)) {
    const Json start = {
        {"type", "content_block_start"}, {"index", 0}, {"content_block", {{"type", "text"}, {"text", ""}}}};
    out += ServerSentEvent(start);
  }
  const Json piece = {{"type", "content_block_delta"},
                      {"index", 0},
                      {"delta", {{"type", "text_delta"}, {"text", delta.text}}}};
  return out + ServerSentEvent(piece);
}

std::string MessagesEncoder::OnFinished(const Finished& finished) {
  if (!head_.stream) {
    Json content = Json::array();
    Json block = {{"type", "text"}, {"text", text_}};
    if (!text_.empty()) content.push_back(std::move(block));
    Json body = Envelope(head_);
    body["content"] = std::move(content);
    body["stop_reason"] = StopReason(finished);
    body["stop_sequence"] = StopSequence(finished);
    body["usage"] = EncodeUsage(finished.usage);
    return DumpJson(body);
  }
  std::string out;
  if (block_open_) out += ServerSentEvent({{"type", "content_block_stop"}, {"index", 0}});
  Json last = {{"type", "message_delta"}};
  last["delta"] = {{"stop_reason", StopReason(finished)}, {"stop_sequence", StopSequence(finished)}};
  last["usage"] = EncodeUsage(finished.usage);
  out += ServerSentEvent(last);
  const Json stop = {{"type", "message_stop"}};
  return out + ServerSentEvent(stop);
}

std::string EncodeTokenCount(int32_t tokens) {
  const Json body = {{"input_tokens", tokens}};
  return DumpJson(body);
}

std::string ErrorBody(const Error& error, std::string_view request_id) {
  Json body = EncodeError(error);
  if (!request_id.empty()) body["request_id"] = request_id;
  return DumpJson(body);
}

std::string StreamError(const Error& error) { return ServerSentEvent(EncodeError(error)); }

}  // namespace quire::api::anthropic
