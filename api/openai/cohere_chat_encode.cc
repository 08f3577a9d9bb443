#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "api/json/encode_parts.h"
#include "api/json/read.h"
#include "api/openai/cohere_chat.h"

namespace quire::api::openai {
namespace {

constexpr std::string_view kText = "text";
constexpr std::string_view kThinking = "thinking";

Json CohereUsage(const Usage& usage) {
  const Json tokens = {{"input_tokens", usage.prompt_tokens}, {"output_tokens", usage.output_tokens}};
  return {{"billed_units", tokens}, {"tokens", tokens}, {"cached_tokens", usage.cached_tokens}};
}

std::string_view CohereReason(const Finished& finished, bool called) {
  if (finished.reason == FinishReason::kLength) return "MAX_TOKENS";
  if (called) return "TOOL_CALL";
  return finished.stop_string.empty() ? "COMPLETE" : "STOP_SEQUENCE";
}

Json CohereCall(const ToolCall& call, std::string_view arguments) {
  Json function = {{"name", call.name}, {"arguments", arguments}};
  return {{"id", call.id}, {"type", "function"}, {"function", std::move(function)}};
}

// {text, token_ids, logprobs} of some tokens.
Json CohereLogprobs(const TokenLogprob* tokens, size_t count) {
  std::string text;
  Json ids = Json::array(), values = Json::array();
  for (size_t i = 0; i < count; ++i) {
    text += tokens[i].chosen.bytes;
    ids.push_back(tokens[i].chosen.id);
    values.push_back(JsonLogprob(tokens[i].chosen.logprob));
  }
  return {{"text", std::move(text)}, {"token_ids", std::move(ids)}, {"logprobs", std::move(values)}};
}

Json Indexed(std::string_view type, int32_t index) { return {{"type", type}, {"index", index}}; }

// The delta of an event of the answer's content.
Json ContentDelta(Json content) {
  Json message = Json::object();
  message["content"] = std::move(content);
  return {{"message", std::move(message)}};
}

Json CallDelta(Json call) {
  Json message = Json::object();
  message["tool_calls"] = std::move(call);
  return {{"message", std::move(message)}};
}

}  // namespace

std::string CohereChatEncoder::OnReady(const PromptReady&, const EventContext&) {
  if (!streams()) return {};
  Json message = {{"role", "assistant"}, {"content", Json::array()}, {"tool_plan", ""}};
  message["tool_calls"] = Json::array();
  message["citations"] = Json::array();
  Json event = {{"type", "message-start"}, {"id", id_}};
  event["delta"]["message"] = std::move(message);
  return NamedEvent(event);
}

std::string CohereChatEncoder::OnDelta(const TextDelta& delta, const EventContext&) {
  calls_ += streams() ? 0 : static_cast<int32_t>(delta.tool_calls.size());
  if (!streams()) {
    Append(answer_, delta);
    return {};
  }
  const bool of_thinking = delta.text.empty() && !delta.thinking.empty();
  const std::vector<TokenLogprob> none;
  std::string out = Piece(kThinking, delta.thinking, of_thinking ? delta.logprobs : none);
  out += Piece(kText, delta.text, of_thinking ? none : delta.logprobs);
  for (const ToolCall& call : delta.tool_calls) out += CallEvents(call);
  return out;
}

std::string CohereChatEncoder::Piece(std::string_view type, const std::string& text,
                                     const std::vector<TokenLogprob>& logprobs) {
  if (text.empty() && logprobs.empty()) return {};
  std::string out;
  if (text.empty() && !open_.empty()) type = open_;
  if (open_ != type) {
    out = CloseBlock();
    Json start = Indexed("content-start", block_);
    start["delta"] = ContentDelta({{"type", type}, {type, ""}});
    out += NamedEvent(start);
    open_ = type;
  }
  Json event = Indexed("content-delta", block_);
  event["delta"] = ContentDelta({{type, text}});
  if (!logprobs.empty()) event["logprobs"] = CohereLogprobs(logprobs.data(), logprobs.size());
  return out + NamedEvent(event);
}

// Sent once complete.
std::string CohereChatEncoder::CallEvents(const ToolCall& call) {
  std::string out = CloseBlock();
  Json start = Indexed("tool-call-start", calls_);
  start["delta"] = CallDelta(CohereCall(call, ""));
  out += NamedEvent(start);
  Json arguments = Indexed("tool-call-delta", calls_);
  arguments["delta"] = CallDelta({{"function", {{"arguments", call.arguments_json}}}});
  out += NamedEvent(arguments);
  return out + NamedEvent(Indexed("tool-call-end", calls_++));
}

std::string CohereChatEncoder::CloseBlock() {
  const std::string_view open = std::exchange(open_, {});
  return open.empty() ? std::string() : NamedEvent(Indexed("content-end", block_++));
}

std::string CohereChatEncoder::EncodeBody(const Finished& finished) const {
  Json content = Json::array();
  const auto add = [&content](std::string_view type, const std::string& text) {
    if (text.empty()) return;
    Json part = {{"type", type}};
    part[type] = text;
    content.push_back(std::move(part));
  };
  add(kThinking, answer_.thinking);
  add(kText, answer_.text);
  Json message = {{"role", "assistant"}};
  if (!answer_.tool_calls.empty()) {
    if (!answer_.text.empty()) message["tool_plan"] = answer_.text;
    Json& calls = message["tool_calls"] = Json::array();
    for (const ToolCall& call : answer_.tool_calls) calls.push_back(CohereCall(call, call.arguments_json));
  }
  if (!content.empty() || answer_.tool_calls.empty()) message["content"] = std::move(content);
  Json body = {{"id", id_}, {"finish_reason", CohereReason(finished, calls_ > 0)}};
  body["message"] = std::move(message);
  body["usage"] = CohereUsage(finished.usage);
  if (!answer_.logprobs.empty()) {
    Json& list = body["logprobs"] = Json::array();
    for (const TokenLogprob& token : answer_.logprobs) list.push_back(CohereLogprobs(&token, 1));
  }
  return DumpJson(body);
}

std::string CohereChatEncoder::OnFinished(const Finished& finished, const EventContext&) {
  if (!streams()) return EncodeBody(finished);
  std::string out = CloseBlock();
  Json event = {{"type", "message-end"}, {"id", id_}};
  event["delta"] = {{"finish_reason", CohereReason(finished, calls_ > 0)},
                    {"usage", CohereUsage(finished.usage)}};
  return out + NamedEvent(event);
}

std::string CohereChatEncoder::OnFailed(const Error& error) {
  std::string out = CloseBlock();
  Json event = {{"type", "message-end"}, {"id", id_}};
  event["delta"] = {{"finish_reason", "ERROR"}, {"error", error.message}};
  return out + NamedEvent(event);
}

}  // namespace quire::api::openai
