#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/image_use.h"
#include "api/base/limits.h"
#include "api/json/body.h"
#include "api/json/copy_budget.h"
#include "api/json/format_fields.h"
#include "api/json/omitted_content.h"
#include "api/json/read.h"
#include "api/json/text.h"
#include "api/json/tool_fields.h"
#include "api/openai/chat.h"
#include "api/openai/image_part.h"
#include "api/openai/parts.h"
#include "api/openai/responses.h"
#include "api/openai/responses_tools.h"
#include "api/openai/unsupported_fields.h"

namespace quire::api::openai {
namespace {

bool OneOf(std::string_view value, std::initializer_list<std::string_view> known) {
  return std::ranges::find(known, value) != known.end();
}

std::string RequireString(Fields& fields, std::string_view name) {
  std::string text;
  if (!fields.Take(name, text)) fields.Reject(name, "is required and must be of type string");
  return text;
}

// The messages of one request, from its input items.
class Items {
 public:
  Items(Fields& body, const std::string& model) : body_(body), model_(model) {}

  std::vector<Message> Get() {
    constexpr std::string_view kName = "input";
    const Json* input = body_.Find(kName);
    if (input != nullptr && input->is_string()) {
      std::vector<Message> messages(1);
      messages.front() = {.role = "user", .content = TakeText(*input)};
      return messages;
    }
    if (input == nullptr || !input->is_array() || input->empty()) {
      body_.Reject(kName, "is required and must be a string or a non-empty array of items");
    }
    for (size_t i = 0; body_.ok() && i < input->size(); ++i) {
      Fields item((*input)[i], fmt::format("input[{}]", i), body_.error());
      GetItem(item);
      if (++counted_ > kMessagesMax) {
        body_.Reject(kName, fmt::format("contains more than {} items", kMessagesMax), ErrorCode::kTooLarge);
      }
    }
    if (messages_.empty()) body_.Reject(kName, "contains no message");
    return std::move(messages_);
  }
  const OmittedContent& omitted() const { return omitted_; }
  const std::vector<std::string>& skipped() const { return skipped_; }

 private:
  void GetItem(Fields& item) {
    std::string type = "message";
    item.Get("type", type);
    if (type == "message") return GetMessage(item);
    if (type == "function_call") return GetCall(item);
    if (type == "function_call_output") return GetResult(item);
    if (type == "custom_tool_call") return AddCall(GetCustomCall(item));
    if (type == "custom_tool_call_output") return GetResult(item);
    if (type == "local_shell_call") return AddCall(GetLocalShellCall(item));
    if (type == "local_shell_call_output") return GetResult(item);
    if (type == "reasoning") return GetReasoning(item);
    if (IsServerItem(type)) return;
    // What stands elsewhere, or can be read by its server only.
    if (OneOf(type, {"item_reference", "compaction", "compaction_summary", "context_compaction"})) {
      skipped_.push_back("input." + type);
      return;
    }
    if (type.ends_with("_call")) return AddCall(GetOtherCall(item, type));
    if (type.ends_with("_call_output")) return GetResult(item);
    Refuse(item, "type", fmt::format("input items of type \"{}\" are not supported", type));
  }

  void GetMessage(Fields& item) {
    Message message{.role = GetRole(item), .content = {}};
    if (message.role == "developer") message.role = "system";
    if (!OneOf(message.role, {"system", "user", "assistant"})) {
      item.Reject("role", "must be system, developer, user or assistant");
    }
    const bool answer = message.role == "assistant";
    if (answer) omitted_.AnswerFollows();
    // An answer may have been nothing but calls.
    if (!answer || item.Find("content") != nullptr) {
      GetContent(item, "content", answer ? OmittedContent::Turn::kHistory : OmittedContent::Turn::kNow,
                 message);
    }
    if (message.role == "assistant") message.thinking = std::exchange(thinking_, {});
    if (message.role == "user") thinking_.clear();
    messages_.push_back(std::move(message));
  }

  // Belongs to the message or the calls that follow, for templates that show it.
  void GetReasoning(Fields& item) {
    for (const auto& [list_name, type] :
         {std::pair{"content", "reasoning_text"}, {"summary", "summary_text"}}) {
      const Json* list = item.FindArray(list_name);
      std::string text;
      for (size_t i = 0; list != nullptr && i < list->size() && item.ok(); ++i) {
        Fields part((*list)[i], item.PathOf(fmt::format("{}[{}]", list_name, i)), item.error());
        if (RequireString(part, "type") != type) part.Reject("type", fmt::format("must be \"{}\"", type));
        text += (text.empty() ? "" : "\n\n") + RequireString(part, "text");
      }
      if (text.empty()) continue;
      thinking_ += (thinking_.empty() ? "" : "\n\n") + text;
      return;
    }
  }

  // Calls follow the assistant's message they belong to, if there is one.
  void GetCall(Fields& item) {
    ToolCall call{RequireString(item, "call_id"), RequireString(item, "name"), "{}"};
    std::string space;
    if (item.Get("namespace", space)) call.name = JoinName(space, call.name);
    std::string arguments;
    item.Get("arguments", arguments);
    call.arguments_json = ArgumentsOfText(std::move(arguments));
    AddCall(std::move(call));
  }

  void AddCall(ToolCall call) {
    omitted_.AnswerFollows();
    called_[call.id] = call.name;
    if (messages_.empty() || messages_.back().role != "assistant") messages_.push_back({"assistant", ""});
    Message& message = messages_.back();
    if (!thinking_.empty()) message.thinking += (message.thinking.empty() ? "" : "\n\n") + thinking_;
    thinking_.clear();
    message.tool_calls.push_back(std::move(call));
  }

  void GetResult(Fields& item) {
    Message result{.role = "tool", .content = {}};
    if (!item.Get("call_id", result.tool_call_id)) {
      // Some clients name the call of a shell by "id".
      if (!item.Get("id", result.tool_call_id))
        item.Reject("call_id", "is required and must be of type string");
    }
    const auto call = called_.find(result.tool_call_id);
    if (call != called_.end() && copies_.Spend("input", call->second.size(), 1, kForAllResults)) {
      result.tool_name = call->second;
    }
    const Json* output = item.Find("output");
    const auto is_part = [](const Json& part) { return part.is_object() && part.contains("type"); };
    const bool parts = output == nullptr || output->is_string() ||
                       (output->is_array() && std::ranges::all_of(*output, is_part));
    if (parts) {
      GetContent(item, "output", OmittedContent::Turn::kHistory, result);
    } else if (is_part(*output) && output->contains("image_url")) {  // a screenshot
      Fields part(*output, item.PathOf("output"), item.error());
      GetPart(part, OmittedContent::Turn::kHistory, result);
    } else {
      result.content = DumpJson(*output);  // of a shell
    }
    messages_.push_back(std::move(result));
  }

  // A text, or parts.
  void GetContent(Fields& item, std::string_view name, OmittedContent::Turn turn, Message& message) {
    const Json* content = item.Find(name);
    if (content != nullptr && content->is_string()) {
      message.content = TakeText(*content);
      return;
    }
    if (content == nullptr || !content->is_array()) {
      return item.Reject(name, "is required and must be of type string or array of parts");
    }
    for (size_t i = 0; i < content->size() && item.ok(); ++i) {
      Fields part((*content)[i], item.PathOf(fmt::format("{}[{}]", name, i)), item.error());
      GetPart(part, turn, message);
    }
  }

  void GetPart(Fields& part, OmittedContent::Turn turn, Message& message) {
    const std::string type = RequireString(part, "type");
    std::string& text = message.content;
    if (OneOf(type, {"input_text", "output_text", "text"}))
      return AppendText(text, RequireString(part, "text"));
    if (type == "refusal") {
      text += RequireString(part, "refusal");
      return;
    }
    if (!part.ok()) return;
    std::string refusal = fmt::format("{} does not support content of type \"{}\"", model_, type);
    if (auto image = ImageOf(part, type)) {
      Error text_only{ErrorCode::kUnsupported, std::move(refusal), part.PathOf("type")};
      return omitted_.AddImage(message, *std::move(image), turn, std::move(text_only));
    }
    if (!text.empty() && text.back() != '\n') text += '\n';
    text += omitted_.LineFor(part, "type", type, turn, std::move(refusal)) + "\n";
  }

  Fields& body_;
  CopyBudget copies_{body_};
  const std::string& model_;
  std::vector<Message> messages_;
  OmittedContent omitted_;
  std::vector<std::string> skipped_;           // items of which nothing is in the prompt, for the log
  std::map<std::string, std::string> called_;  // id -> name of every call so far
  std::string thinking_;                       // of the assistant's turn that follows
  size_t counted_ = 0;
};

// Nothing is kept between requests, so what refers to an earlier one cannot be honored.
void CheckState(Fields& body) {
  for (const std::string_view name : {"previous_response_id", "conversation", "prompt"}) {
    if (HasValue(body, name))
      Refuse(body, name, fmt::format("{}: not supported, this server is stateless", name));
  }
  bool background = false;
  body.Get("background", background);
  if (background) Refuse(body, "background", "background: not supported");
}

std::optional<OutputFormat> GetTextFormat(Fields& body) {
  const Json* text = body.FindObject("text");
  if (text == nullptr) return std::nullopt;
  Fields fields(*text, "text", body.error());
  return GetTypedFormat(fields);
}

// "text.format", or one of the fields that chats have for it.
std::optional<OutputFormat> GetAnyFormat(Fields& body) {
  auto format = GetTextFormat(body);
  auto other = GetResponseFormat(body);
  if (format && other)
    body.Reject("text.format", "cannot be combined with another field that sets the output format");
  return other ? std::move(other) : std::move(format);
}

void GetTools(Fields& body, ResponsesRequest& request) {
  if (const Json* tools = body.FindArray("tools")) request.tools_json = DumpJson(*tools);
  if (const Json* choice = body.Find("tool_choice")) request.tool_choice_json = DumpJson(*choice);
  request.tools = GetResponsesTools(body, request.special_tools);
  for (const std::string& name : request.tools.left_out) request.unknown_options.push_back("tools." + name);
}

void GetResponsesBody(Fields& body, ResponsesRequest& request) {
  request.model = GetModel(body);
  body.Get("stream", request.stream);
  body.Take("instructions", request.instructions);
  request.keep_alive = GetKeepAlive(body);
  request.cache_salt = GetCacheSalt(body);
  GetSampling(body, request.options, request.unknown_options);
  body.Get("max_output_tokens", request.options.num_predict, 1);
  Items items(body, request.model);
  request.messages = items.Get();
  items.omitted().Finish(body, request.unknown_options);
  request.image_use = items.omitted().images();
  for (const std::string& name : items.skipped()) request.unknown_options.push_back(name);
  CheckState(body);
  request.format = GetAnyFormat(body);
  if (const Json* said = body.Find("text")) request.text_json = DumpJson(*said);
  GetTools(body, request);
  Think effort = GetEffort(body, "reasoning_effort");
  if (const Json* reasoning = effort == Think::kUnset ? body.FindObject("reasoning") : nullptr) {
    Fields fields(*reasoning, "reasoning", body.error());
    effort = GetEffort(fields, "effort");
  }
  request.rendering = GetTemplateFields(body, effort, request.messages);
  std::string truncation;
  if (body.Get("truncation", truncation) && truncation != "auto" && truncation != "disabled")
    body.Reject("truncation", R"(must be "auto" or "disabled")");
  request.truncates = truncation == "auto";
  RefuseUnsupported(body, Route::kResponses);
  AddUnread(body, request.unknown_options);
}

// Most templates take one system message.
void JoinLeadingSystem(std::vector<Message>& messages) {
  const auto other =
      std::ranges::find_if(messages, [](const Message& message) { return message.role != "system"; });
  if (other - messages.begin() < 2) return;
  for (auto more = messages.begin() + 1; more != other; ++more) {
    messages.front().content += "\n\n";
    AppendContent(messages.front(), "", *more);
  }
  messages.erase(messages.begin() + 1, other);
}

}  // namespace

Result<ResponsesRequest> ParseResponses(std::string_view text) {
  auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  ResponsesRequest request;
  FirstError error;
  Fields body(*json, "", error);
  GetResponsesBody(body, request);
  if (error) return std::unexpected(std::move(*error));
  return request;
}

Request ToRequest(ResponsesRequest responses, const ModelDefaults& defaults) {
  const bool truncates = responses.truncates;
  ChatRequest chat;
  chat.model = std::move(responses.model);
  chat.rendering = std::move(responses.rendering);
  chat.format = std::move(responses.format);
  chat.tools = std::move(responses.tools);
  chat.options = std::move(responses.options);
  chat.cache_salt = std::move(responses.cache_salt);
  if (!responses.instructions.empty()) chat.messages.push_back({"system", std::move(responses.instructions)});
  chat.messages.insert(chat.messages.end(), std::make_move_iterator(responses.messages.begin()),
                       std::make_move_iterator(responses.messages.end()));
  JoinLeadingSystem(chat.messages);
  Request request = ToRequest(std::move(chat), defaults);
  if (truncates) request.overflow = Overflow::kDropMessages;
  return request;
}

}  // namespace quire::api::openai
