#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/encode_parts.h"
#include "api/json/read.h"
#include "api/json/timings.h"
#include "api/openai/parts.h"
#include "api/openai/responses.h"

namespace quire::api::openai {
namespace {

constexpr auto kStatusNames = std::to_array<std::string_view>({"in_progress", "completed", "incomplete"});

Json EncodeResponseUsage(const Usage& usage) {
  Json input = Json::object();
  input["cached_tokens"] = usage.cached_tokens;
  Json output = Json::object();
  output["reasoning_tokens"] = usage.reasoning_tokens;
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

Json JsonOr(const std::string& text, Json otherwise) {
  if (text.empty()) return otherwise;
  auto json = ReadJson(text);
  return json ? *std::move(json) : std::move(otherwise);
}

Json OutputText(std::string_view text) {
  return {
      {"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
}

// The member of a call's item that holds the text which the model wrote; empty where there is none.
std::string_view InputOf(const Json& call) {
  return call.contains("arguments") ? "arguments" : call.contains("input") ? "input" : std::string_view();
}

Json SummaryText(std::string_view text) { return {{"type", "summary_text"}, {"text", text}}; }

}  // namespace

std::string ResponsesEncoder::Numbered(Json event) {
  if (!streams()) return {};
  event["sequence_number"] = next_number_++;
  return NamedEvent(event);
}

std::string ResponsesEncoder::IdOf(size_t index) const {
  const auto earlier = [&](size_t i) { return items_[i].kind == items_[index].kind; };
  size_t same = 0;
  for (size_t i = 0; i < index; ++i) same += earlier(i) ? 1 : 0;
  switch (items_[index].kind) {
    case Kind::kReasoning:
      return fmt::format("rs_{}_{}", head_.id, same);
    case Kind::kCall:
      return fmt::format("fc_{}_{}", head_.id, same);
    default:
      return same == 0 ? head_.message_id : fmt::format("{}_{}", head_.message_id, same);
  }
}

Json ResponsesEncoder::Encode(size_t index, Status status) const {
  const Item& item = items_[index];
  const bool begun = status != Status::kInProgress;
  const auto name = kStatusNames.at(static_cast<size_t>(status));
  switch (item.kind) {
    case Kind::kReasoning:
      return {{"id", IdOf(index)},
              {"type", "reasoning"},
              {"summary", begun ? Json::array({SummaryText(item.text)}) : Json::array()}};
    case Kind::kCall: {
      Json call = CallItem(item.call, head_.special_tools);
      if (const std::string_view input = InputOf(call); !input.empty() && !begun)
        call[std::string(input)] = "";
      call["id"] = IdOf(index);
      call["status"] = name;
      return call;
    }
    default:
      return {{"id", IdOf(index)},
              {"type", "message"},
              {"status", name},
              {"role", "assistant"},
              {"content", begun ? Json::array({OutputText(item.text)}) : Json::array()}};
  }
}

Json ResponsesEncoder::Output(Status last) const {
  Json output = Json::array();
  for (size_t i = 0; i < items_.size(); ++i) {
    output.push_back(Encode(i, i + 1 == items_.size() ? last : Status::kCompleted));
  }
  return output;
}

Json ResponsesEncoder::Response(Status status, Json output, const Usage* usage) const {
  const bool cut = status == Status::kIncomplete;
  Json response = {
      {"id", head_.id},
      {"object", "response"},
      {"created_at", Seconds(head_.created)},
      {"status", kStatusNames.at(static_cast<size_t>(status))},
      {"error", nullptr},
      {"incomplete_details", cut ? ObjectOf("reason", "max_output_tokens") : Json(nullptr)},
      {"instructions", head_.instructions.empty() ? Json(nullptr) : Json(head_.instructions)},
      {"max_output_tokens", head_.max_output_tokens ? Json(*head_.max_output_tokens) : Json(nullptr)},
      {"model", head_.model},
      {"output", std::move(output)},
      {"parallel_tool_calls", head_.parallel_tool_calls},
      {"previous_response_id", nullptr},
      {"store", false},
      {"temperature", head_.temperature},
      {"text", JsonOr(head_.text_json, ObjectOf("format", ObjectOf("type", "text")))},
      {"tool_choice", JsonOr(head_.tool_choice_json, "auto")},
      {"tools", JsonOr(head_.tools_json, Json::array())},
      {"top_p", head_.top_p},
      {"truncation", head_.truncates ? "auto" : "disabled"},
      {"usage", usage == nullptr ? Json(nullptr) : EncodeResponseUsage(*usage)},
      {"metadata", Json::object()}};
  if (usage != nullptr) response["timings"] = EncodeTimings(*usage);
  return response;
}

Json ResponsesEncoder::ItemEvent(std::string_view type) const {
  return {{"type", type}, {"item_id", IdOf(items_.size() - 1)}, {"output_index", items_.size() - 1}};
}

// The only part of the last item, with this text.
Json ResponsesEncoder::PartEvent(std::string_view type, std::string_view text) const {
  const bool message = items_.back().kind == Kind::kMessage;
  Json event = ItemEvent(type);
  event[message ? "content_index" : "summary_index"] = 0;
  event["part"] = message ? OutputText(text) : SummaryText(text);
  return event;
}

std::string ResponsesEncoder::OnReady(const PromptReady&, const EventContext&) {
  std::string out;
  for (const std::string_view type : {"response.created", "response.in_progress"}) {
    Json event = ObjectOf("type", type);
    event["response"] = Response(Status::kInProgress, Json::array(), nullptr);
    out += Numbered(std::move(event));
  }
  return out;
}

std::string ResponsesEncoder::OpenItem(Item item) {
  std::string out = CloseItem(Status::kCompleted);
  items_.push_back(std::move(item));
  open_ = true;
  Json added = {{"type", "response.output_item.added"}, {"output_index", items_.size() - 1}};
  added["item"] = Encode(items_.size() - 1, Status::kInProgress);
  out += Numbered(std::move(added));
  if (items_.back().kind == Kind::kCall) return out;
  const bool message = items_.back().kind == Kind::kMessage;
  return out + Numbered(PartEvent(
                   message ? "response.content_part.added" : "response.reasoning_summary_part.added", ""));
}

std::string ResponsesEncoder::CloseItem(Status status) {
  if (!std::exchange(open_, false)) return {};
  const Item& item = items_.back();
  std::string out;
  if (item.kind == Kind::kCall) {
    out = CallEvent("done");
  } else {
    const bool message = item.kind == Kind::kMessage;
    Json done = ItemEvent(message ? "response.output_text.done" : "response.reasoning_summary_text.done");
    done[message ? "content_index" : "summary_index"] = 0;
    done["text"] = item.text;
    if (message) done["logprobs"] = Json::array();
    out = Numbered(std::move(done));
    out += Numbered(PartEvent(message ? "response.content_part.done" : "response.reasoning_summary_part.done",
                              item.text));
  }
  Json last = {{"type", "response.output_item.done"}, {"output_index", items_.size() - 1}};
  last["item"] = Encode(items_.size() - 1, status);
  return out + Numbered(std::move(last));
}

std::string ResponsesEncoder::AddPiece(Kind kind, const std::string& text) {
  if (text.empty()) return {};
  std::string out;
  if (!open_ || items_.back().kind != kind) out = OpenItem({kind, {}, {}});
  items_.back().text += text;
  const bool message = kind == Kind::kMessage;
  Json event = ItemEvent(message ? "response.output_text.delta" : "response.reasoning_summary_text.delta");
  event[message ? "content_index" : "summary_index"] = 0;
  event["delta"] = text;
  if (message) event["logprobs"] = Json::array();
  return out + Numbered(std::move(event));
}

// The text of the last item, a call; a call of the local shell has none.
std::string ResponsesEncoder::CallEvent(std::string_view stage) {
  const Json call = CallItem(items_.back().call, head_.special_tools);
  const std::string_view input = InputOf(call);
  if (input.empty()) return {};
  const std::string_view what = input == "input" ? "custom_tool_call_input" : "function_call_arguments";
  Json event = ItemEvent(fmt::format("response.{}.{}", what, stage));
  event[std::string(stage == "delta" ? stage : input)] = call.at(std::string(input));
  return Numbered(std::move(event));
}

// Sent once complete.
std::string ResponsesEncoder::AddCall(const ToolCall& call) {
  std::string out = OpenItem({Kind::kCall, {}, call});
  out += CallEvent("delta");
  return out + CloseItem(Status::kCompleted);
}

std::string ResponsesEncoder::OnDelta(const TextDelta& delta, const EventContext&) {
  std::string out;
  if (!head_.hide_thinking) out = AddPiece(Kind::kReasoning, delta.thinking);
  out += AddPiece(Kind::kMessage, delta.text);
  for (const ToolCall& call : delta.tool_calls) out += AddCall(call);
  return out;
}

std::string ResponsesEncoder::OnFinished(const Finished& finished, const EventContext&) {
  const Status status = finished.reason == FinishReason::kLength ? Status::kIncomplete : Status::kCompleted;
  std::string out;
  if (items_.empty()) out = OpenItem({});
  const bool last_open = open_;
  out += CloseItem(status);
  Json response = Response(status, Output(last_open ? status : Status::kCompleted), &finished.usage);
  if (!streams()) return DumpJson(response);
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
