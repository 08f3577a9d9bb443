#include "api/openai/message.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/encode_parts.h"

namespace quire::api::openai {
namespace {

Json EncodeCall(const ToolCall& call, size_t index, std::string_view arguments) {
  Json function = {{"name", call.name}, {"arguments", arguments}};
  return {{"index", index}, {"id", call.id}, {"type", "function"}, {"function", std::move(function)}};
}

// Clients know one name or the other.
void SetReasoning(Json& object, const std::string& thinking) {
  if (thinking.empty()) return;
  object["reasoning"] = thinking;
  object["reasoning_content"] = thinking;
}

}  // namespace

Json MessageOf(const TextDelta& answer) {
  Json message = {{"role", "assistant"}, {"content", answer.text}};
  SetReasoning(message, answer.thinking);
  if (answer.tool_calls.empty()) return message;
  Json calls = Json::array();
  for (const ToolCall& call : answer.tool_calls) {
    calls.push_back(EncodeCall(call, calls.size(), call.arguments_json));
  }
  message["tool_calls"] = std::move(calls);
  return message;
}

std::vector<Json> DeltasOf(const TextDelta& delta, bool first, size_t calls_before) {
  std::vector<Json> deltas;
  Json piece = Json::object();
  if (first) piece["role"] = "assistant";
  const bool only_others = !delta.thinking.empty() || !delta.tool_calls.empty();
  if (first || !delta.text.empty() || !only_others) piece["content"] = delta.text;
  SetReasoning(piece, delta.thinking);
  if (!piece.empty()) deltas.push_back(std::move(piece));
  for (size_t i = 0; i < delta.tool_calls.size(); ++i) {
    const ToolCall& call = delta.tool_calls[i];
    Json begin = Json::object();
    begin["tool_calls"] = Json::array({EncodeCall(call, calls_before + i, "")});
    deltas.push_back(std::move(begin));
    Json function = Json::object();
    function["arguments"] = call.arguments_json;
    Json entry = {{"index", calls_before + i}, {"function", std::move(function)}};
    Json rest = Json::object();
    rest["tool_calls"] = Json::array({std::move(entry)});
    deltas.push_back(std::move(rest));
  }
  return deltas;
}

std::string_view FinishName(FinishReason reason, bool called) {
  return called && reason == FinishReason::kStop ? "tool_calls" : Name(reason);
}

}  // namespace quire::api::openai
