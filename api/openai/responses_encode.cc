#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/encode_parts.h"
#include "api/json/option_fields.h"
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

// Members of an object as JSON text, without its braces.
std::string MembersOf(const Json& object) {
  const std::string text = DumpJson(object);
  return text.substr(1, text.size() - 2);
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

// `text` is JSON, empty: `otherwise` is.
void AppendMember(std::string& members, std::string_view name, std::string_view text,
                  std::string_view otherwise) {
  members += fmt::format("{}\"{}\":", members.empty() ? "" : ",", name);
  members += text.empty() ? otherwise : text;
}

}  // namespace

ResponseText::ResponseText(const ResponseHead& head) {
  begin_ = MembersOf({{"id", head.id}, {"object", "response"}, {"created_at", Seconds(head.created)}});
  before_output_ = MembersOf(
      {{"instructions", head.instructions.empty() ? Json(nullptr) : Json(head.instructions)},
       {"max_output_tokens", head.max_output_tokens ? Json(*head.max_output_tokens) : Json(nullptr)},
       {"model", head.model}});
  after_output_ = MembersOf({{"parallel_tool_calls", head.parallel_tool_calls},
                             {"previous_response_id", nullptr},
                             {"store", false}});
  AppendMember(settings_, "text", head.text_json, R"({"format":{"type":"text"}})");
  AppendMember(settings_, "tool_choice", head.tool_choice_json, R"("auto")");
  AppendMember(settings_, "tools", head.tools_json, "[]");
  end_ = MembersOf(ObjectOf("truncation", head.truncates ? "auto" : "disabled"));
}

std::string ResponseText::Encode(std::string_view status, bool cut, std::string_view output,
                                 const Usage* usage, const ResponseHead& head) const {
  const std::string state =
      MembersOf({{"status", status},
                 {"error", nullptr},
                 {"incomplete_details", cut ? ObjectOf("reason", "max_output_tokens") : Json(nullptr)}});
  Json last = {{"usage", usage == nullptr ? Json(nullptr) : EncodeResponseUsage(*usage)},
               {"metadata", Json::object()}};
  if (usage != nullptr) last["timings"] = EncodeTimings(*usage);
  const std::string rest = MembersOf(last),
                    temperature = MembersOf(ObjectOf("temperature", head.temperature)),
                    top_p = MembersOf(ObjectOf("top_p", head.top_p));
  std::string out;
  out.reserve(bytes() + state.size() + output.size() + rest.size() + 128);
  out.append("{").append(begin_).append(",").append(state).append(",").append(before_output_);
  out.append(",\"output\":").append(output).append(",").append(after_output_);
  for (const std::string* members : {&temperature, &settings_, &top_p, &end_, &rest})
    out.append(",").append(*members);
  return out.append("}");
}

ResponsesEncoder::ResponsesEncoder(ResponseHead head)
    : ReplyEncoder(head.stream, kEventStream, kWaiting), text_(head), head_(std::move(head)) {
  for (std::string* text :
       {&head_.instructions, &head_.text_json, &head_.tools_json, &head_.tool_choice_json}) {
    *text = {};
  }
}

size_t ResponsesEncoder::RepeatedBytes(const Event& event, size_t) const {
  if (std::holds_alternative<PromptReady>(event)) return streams() ? 2 * text_.bytes() : 0;
  if (!std::holds_alternative<Finished>(event)) return 0;
  constexpr size_t kTimes = 4;   // the text of the last item: once in each of its events, and in the response
  constexpr size_t kItem = 256;  // its members besides
  size_t answer = 0;
  for (const Item& item : items_) {
    answer += kItem + item.text.size() + item.call.name.size() + item.call.arguments_json.size();
  }
  return text_.bytes() + kTimes * answer;
}

std::string ResponsesEncoder::Numbered(Json event) {
  if (!streams()) return {};
  event["sequence_number"] = next_number_++;
  return NamedEvent(event);
}

std::string ResponsesEncoder::IdOf(size_t index) const {
  const size_t same = items_[index].number;
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

std::string ResponsesEncoder::Response(Status status, const Json& output, const Usage* usage) const {
  return text_.Encode(kStatusNames.at(static_cast<size_t>(status)), status == Status::kIncomplete,
                      DumpJson(output), usage, head_);
}

std::string ResponsesEncoder::ResponseEvent(std::string_view type, std::string_view response) {
  std::string out;
  out.reserve(response.size() + 128);
  out.append("event: ").append(type).append("\ndata: {\"type\":\"").append(type).append("\",\"response\":");
  out.append(response).append(fmt::format(",\"sequence_number\":{}}}\n\n", next_number_++));
  return out;
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

std::string ResponsesEncoder::OnReady(const PromptReady& ready, const EventContext&) {
  GenerationParams params{.temperature = head_.temperature, .top_p = head_.top_p};
  ApplySampling(ready.sampling, params);
  head_.temperature = params.temperature;
  head_.top_p = params.top_p;
  if (!streams()) return {};
  const std::string response = Response(Status::kInProgress, Json::array(), nullptr);
  std::string out = ResponseEvent("response.created", response);
  return out += ResponseEvent("response.in_progress", response);
}

std::string ResponsesEncoder::OpenItem(Item item) {
  std::string out = CloseItem(Status::kCompleted);
  item.number = items_of_[item.kind]++;
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
  std::string response = Response(status, Output(last_open ? status : Status::kCompleted), &finished.usage);
  if (!streams()) return response;
  const bool completed = status == Status::kCompleted;
  return out += ResponseEvent(completed ? "response.completed" : "response.incomplete", response);
}

std::string ResponsesEncoder::OnFailed(const Error& error) {
  Json event = {{"type", "error"},
                {"code", "server_error"},
                {"message", error.message},
                {"param", error.field.empty() ? Json(nullptr) : Json(error.field)}};
  return Numbered(std::move(event));
}

std::string InputTokensEncoder::OnFinished(const Finished& finished, const EventContext&) {
  const Json body = {{"object", "response.input_tokens"}, {"input_tokens", finished.usage.prompt_tokens}};
  return DumpJson(body);
}

}  // namespace quire::api::openai
