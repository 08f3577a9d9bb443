#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "api/json_read.h"
#include "api/openai_parts.h"
#include "api/openai_responses.h"

namespace quire::api::openai {
namespace {

Json EncodeUsage(const Usage& usage) {
  Json input = Json::object();
  input["cached_tokens"] = usage.cached_tokens;
  Json output = Json::object();
  output["reasoning_tokens"] = 0;
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", std::move(input)},
          {"output_tokens", usage.output_tokens},
          {"output_tokens_details", std::move(output)},
          {"total_tokens", int64_t{usage.prompt_tokens} + usage.output_tokens}};
}

Json ObjectOf(std::string_view key, Json value) {
  Json object = Json::object();
  object[std::string(key)] = std::move(value);
  return object;
}

}  // namespace

std::string ResponsesEncoder::Numbered(Json event) {
  event["sequence_number"] = next_number_++;
  return fmt::format("event: {}\ndata: {}\n\n", event.at("type").get_ref<const std::string&>(),
                     DumpJson(event));
}

Json ResponsesEncoder::OutputText() const {
  return {
      {"type", "output_text"}, {"text", text_}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
}

Json ResponsesEncoder::OutputMessage(Status status, Json content) const {
  constexpr auto kNames = std::to_array<std::string_view>({"in_progress", "completed", "incomplete"});
  return {{"id", head_.message_id},
          {"type", "message"},
          {"status", kNames.at(static_cast<size_t>(status))},
          {"role", "assistant"},
          {"content", std::move(content)}};
}

Json ResponsesEncoder::Response(Status status, Json output, Json usage) const {
  constexpr auto kNames = std::to_array<std::string_view>({"in_progress", "completed", "incomplete"});
  const bool cut = status == Status::kIncomplete;
  Json format = ObjectOf("format", ObjectOf("type", "text"));
  return {{"id", head_.id},
          {"object", "response"},
          {"created_at", Seconds(head_.created)},
          {"status", kNames.at(static_cast<size_t>(status))},
          {"error", nullptr},
          {"incomplete_details", cut ? ObjectOf("reason", "max_output_tokens") : Json(nullptr)},
          {"instructions", head_.instructions.empty() ? Json(nullptr) : Json(head_.instructions)},
          {"max_output_tokens", head_.max_output_tokens ? Json(*head_.max_output_tokens) : Json(nullptr)},
          {"model", head_.model},
          {"output", std::move(output)},
          {"parallel_tool_calls", true},
          {"previous_response_id", nullptr},
          {"store", false},
          {"temperature", head_.temperature},
          {"text", std::move(format)},
          {"tool_choice", "auto"},
          {"tools", Json::array()},
          {"top_p", head_.top_p},
          {"truncation", "disabled"},
          {"usage", std::move(usage)},
          {"metadata", Json::object()}};
}

Json ResponsesEncoder::MessageEvent(std::string_view type) const {
  return {{"type", type}, {"item_id", head_.message_id}, {"output_index", 0}, {"content_index", 0}};
}

std::string ResponsesEncoder::OnEvent(const Event& event) {
  if (const auto* delta = std::get_if<TextDelta>(&event)) return OnText(*delta);
  if (const auto* finished = std::get_if<Finished>(&event)) return OnFinished(*finished);
  if (const auto* failed = std::get_if<Failed>(&event)) return OnFailed(failed->error);
  return head_.stream ? Begin() : std::string();
}

std::string ResponsesEncoder::Begin() {
  std::string out;
  for (const std::string_view type : {"response.created", "response.in_progress"}) {
    Json event = ObjectOf("type", type);
    event["response"] = Response(Status::kInProgress, Json::array(), nullptr);
    out += Numbered(std::move(event));
  }
  return out;
}

std::string ResponsesEncoder::OpenMessage() {
  if (std::exchange(message_open_, true)) return {};
  Json added = {{"type", "response.output_item.added"}, {"output_index", 0}};
  added["item"] = OutputMessage(Status::kInProgress, Json::array());
  Json part = MessageEvent("response.content_part.added");
  part["part"] = OutputText();
  const std::string first = Numbered(std::move(added));
  return first + Numbered(std::move(part));
}

std::string ResponsesEncoder::OnText(const TextDelta& delta) {
  if (delta.text.empty()) return {};
  std::string out = head_.stream ? OpenMessage() : std::string();
  text_ += delta.text;
  if (!head_.stream) return {};
  Json event = MessageEvent("response.output_text.delta");
  event["delta"] = delta.text;
  event["logprobs"] = Json::array();
  return out + Numbered(std::move(event));
}

std::string ResponsesEncoder::CloseMessage(Status status) {
  Json done = MessageEvent("response.output_text.done");
  done["text"] = text_;
  done["logprobs"] = Json::array();
  Json part = MessageEvent("response.content_part.done");
  part["part"] = OutputText();
  Json item = {{"type", "response.output_item.done"}, {"output_index", 0}};
  item["item"] = OutputMessage(status, Json::array({OutputText()}));
  std::string out = Numbered(std::move(done));
  out += Numbered(std::move(part));
  return out + Numbered(std::move(item));
}

std::string ResponsesEncoder::OnFinished(const Finished& finished) {
  const Status status = finished.reason == FinishReason::kLength ? Status::kIncomplete : Status::kCompleted;
  Json message = OutputMessage(status, Json::array({OutputText()}));
  Json response = Response(status, Json::array({std::move(message)}), EncodeUsage(finished.usage));
  if (!head_.stream) return DumpJson(response);
  std::string out = OpenMessage();
  out += CloseMessage(status);
  Json event = ObjectOf("type", status == Status::kCompleted ? "response.completed" : "response.incomplete");
  event["response"] = std::move(response);
  return out + Numbered(std::move(event));
}

std::string ResponsesEncoder::OnFailed(const Error& error) {
  Json event = {{"type", "error"},
                {"code", "server_error"},
                {"message", error.message},
                {"param", error.field.empty() ? Json(nullptr) : Json(error.field)}};
  return Numbered(std::move(event));
}

}  // namespace quire::api::openai
