#include <fmt/format.h>

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "api/anthropic/messages.h"
#include "api/base/timestamp.h"
#include "api/json/encode_parts.h"
#include "api/json/read.h"

namespace quire::api::anthropic {
namespace {

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

std::string_view StopReason(const Finished& finished, bool called) {
  if (finished.reason == FinishReason::kLength) return "max_tokens";
  if (called) return "tool_use";
  return finished.stop_string.empty() ? "end_turn" : "stop_sequence";
}

Json StopSequence(const Finished& finished) {
  return finished.stop_string.empty() ? Json(nullptr) : Json(finished.stop_string);
}

Json Envelope(const ReplyHead& head) {
  return {{"id", head.id}, {"type", "message"}, {"role", "assistant"}, {"model", head.model}};
}

std::string_view ErrorType(const Error& error) {
  switch (HttpStatus(error.code)) {
    case 400:
      return "invalid_request_error";
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return "api_error";
  }
}

Json EncodeError(const Error& error) {
  Json body = {{"type", "error"}};
  const bool too_long = error.code == ErrorCode::kContextLengthExceeded && error.tokens > 0;
  // Clients recognize these words and compact the conversation.
  std::string message =
      too_long ? fmt::format("prompt is too long: {} tokens > {} maximum", error.tokens, error.tokens_max)
               : error.message;
  Json inner = {{"type", ErrorType(error)}, {"message", std::move(message)}};
  // On this code Anthropic's client sends the whole conversation instead of the thread's name.
  if (error.field == "thread") inner["details"] = {{"error_code", "thread_unsupported_request"}};
  body["error"] = std::move(inner);
  return body;
}

std::string BlockStart(int32_t index, Json block) {
  Json event = {{"type", "content_block_start"}, {"index", index}};
  event["content_block"] = std::move(block);
  return NamedEvent(event);
}

std::string BlockDelta(int32_t index, Json delta) {
  Json event = {{"type", "content_block_delta"}, {"index", index}};
  event["delta"] = std::move(delta);
  return NamedEvent(event);
}

std::string BlockStop(int32_t index) {
  const Json event = {{"type", "content_block_stop"}, {"index", index}};
  return NamedEvent(event);
}

// The blocks of a whole answer.
Json Content(const TextDelta& answer) {
  Json content = Json::array();
  if (!answer.thinking.empty()) {
    Json block = {{"type", "thinking"}, {"thinking", answer.thinking}, {"signature", ""}};
    content.push_back(std::move(block));
  }
  if (!answer.text.empty()) {
    Json block = {{"type", "text"}, {"text", answer.text}};
    content.push_back(std::move(block));
  }
  for (const ToolCall& call : answer.tool_calls) {
    Json block = {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", ArgumentsOf(call)}};
    content.push_back(std::move(block));
  }
  return content;
}

}  // namespace

std::string MessagesEncoder::OnReady(const PromptReady& ready, const EventContext&) {
  if (!streams()) return {};
  Json message = Envelope(head_);
  message["content"] = Json::array();
  message["stop_reason"] = nullptr;
  message["stop_sequence"] = nullptr;
  message["usage"] = EncodeUsage(ready.prompt_tokens, ready.cached_tokens, 0);
  Json event = {{"type", "message_start"}};
  event["message"] = std::move(message);
  return NamedEvent(event);
}

std::string MessagesEncoder::OnDelta(const TextDelta& delta, const EventContext&) {
  called_ = called_ || !delta.tool_calls.empty();
  if (!streams()) {
    Append(answer_, delta);
    return {};
  }
  std::string out = Piece(Block::kThinking, delta.thinking);
  out += Piece(Block::kText, delta.text);
  for (const ToolCall& call : delta.tool_calls) out += CallBlock(call);
  return out;
}

std::string MessagesEncoder::Piece(Block kind, const std::string& text) {
  if (text.empty()) return {};
  const std::string name = kind == Block::kText ? "text" : "thinking";
  std::string out;
  if (open_ != kind) {
    out = CloseBlock();
    out += BlockStart(index_, {{"type", name}, {name, ""}});
    open_ = kind;
  }
  return out + BlockDelta(index_, {{"type", name + "_delta"}, {name, text}});
}

// Sent once complete.
std::string MessagesEncoder::CallBlock(const ToolCall& call) {
  std::string out = CloseBlock();
  Json block = {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", Json::object()}};
  out += BlockStart(index_, std::move(block));
  out += BlockDelta(index_, {{"type", "input_json_delta"}, {"partial_json", call.arguments_json}});
  return out + BlockStop(index_++);
}

std::string MessagesEncoder::CloseBlock() {
  const Block open = std::exchange(open_, Block::kNone);
  if (open == Block::kNone) return {};
  std::string out;
  if (open == Block::kThinking) out += BlockDelta(index_, {{"type", "signature_delta"}, {"signature", ""}});
  return out + BlockStop(index_++);
}

std::string MessagesEncoder::OnFinished(const Finished& finished, const EventContext&) {
  if (!streams()) {
    Json body = Envelope(head_);
    body["content"] = Content(answer_);
    body["stop_reason"] = StopReason(finished, called_);
    body["stop_sequence"] = StopSequence(finished);
    body["usage"] = EncodeUsage(finished.usage);
    return DumpJson(body);
  }
  std::string out = CloseBlock();
  Json last = {{"type", "message_delta"}};
  last["delta"] = {{"stop_reason", StopReason(finished, called_)}, {"stop_sequence", StopSequence(finished)}};
  last["usage"] = EncodeUsage(finished.usage);
  out += NamedEvent(last);
  const Json stop = {{"type", "message_stop"}};
  return out + NamedEvent(stop);
}

std::string MessagesEncoder::OnFailed(const Error& error) { return NamedEvent(EncodeError(error)); }

std::string TokenCountEncoder::OnDelta(const TextDelta&, const EventContext&) { return {}; }

std::string TokenCountEncoder::OnFinished(const Finished& finished, const EventContext&) {
  const Json body = {{"input_tokens", finished.usage.prompt_tokens}};
  return DumpJson(body);
}

namespace {

// Every key that the dialect's clients know is there.
Json CapabilitiesOf(const ModelEntry& model) {
  const auto support = [](bool supported, std::initializer_list<std::pair<const char*, bool>> parts) {
    Json object = {{"supported", supported}};
    for (const auto& [name, there] : parts) object[name] = Json{{"supported", there}};
    return object;
  };
  const bool thinks = model.thinks;
  Json types = Json::object();
  for (const auto& [name, there] : std::initializer_list<std::pair<const char*, bool>>{
           {"adaptive", thinks}, {"between_tools", thinks}, {"disabled", true}, {"enabled", thinks}}) {
    types[name] = Json{{"supported", there}};
  }
  Json thinking = support(thinks, {});
  thinking["types"] = std::move(types);
  Json capabilities = Json::object();
  for (const char* name : {"batch", "citations", "code_execution", "pdf_input"})
    capabilities[name] = support(false, {});
  capabilities["image_input"] = support(model.sees_images, {});
  capabilities["context_management"] = support(false, {});
  capabilities["effort"] =
      support(thinks, {{"high", thinks}, {"low", thinks}, {"max", thinks}, {"medium", thinks}});
  capabilities["server_tools"] = support(false, {{"code_execution", false}, {"web_search", false}});
  capabilities["structured_outputs"] = support(true, {});
  capabilities["thinking"] = std::move(thinking);
  return capabilities;
}

}  // namespace

std::string EncodeModels(const std::vector<ModelEntry>& models) {
  Json list = Json::array();
  for (const ModelEntry& model : models) {
    Json entry = {{"type", "model"}, {"id", model.id}, {"display_name", model.id}, {"lifecycle", "active"}};
    entry["created_at"] = FormatTimestamp(model.created);
    entry["max_input_tokens"] = model.context_length > 0 ? Json(model.context_length) : Json();
    entry["max_tokens"] = entry["max_input_tokens"];
    entry["capabilities"] = CapabilitiesOf(model);
    list.push_back(std::move(entry));
  }
  Json body = {{"has_more", false}};
  body["first_id"] = models.empty() ? Json() : Json(models.front().id);
  body["last_id"] = models.empty() ? Json() : Json(models.back().id);
  body["data"] = std::move(list);
  return DumpJson(body);
}

std::string ErrorBody(const Error& error, std::string_view request_id) {
  Json body = EncodeError(error);
  if (!request_id.empty()) body["request_id"] = request_id;
  return DumpJson(body);
}

}  // namespace quire::api::anthropic
