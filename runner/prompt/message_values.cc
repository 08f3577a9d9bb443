#include "runner/prompt/message_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "api/base/utf8.h"
#include "runner/jinja/json_reader.h"

namespace quire::runner {
namespace {

using jinja::Trust;
using jinja::Value;

bool IsWellKnownRole(std::string_view role) {
  static constexpr std::string_view kRoles[] = {"system",      "user",    "assistant",  "tool",
                                                "developer",   "model",   "function",   "ipython",
                                                "environment", "context", "observation"};
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

api::Result<Value> ReadRequestJson(jinja::JsonReader& reader, const std::string& text, const char* field) {
  auto value = reader.Read(text);
  if (!value) return api::Fail(value.error().code, fmt::format("{} {}", field, value.error().message), field);
  return value;
}

// Makes the dicts of one conversation; they share their keys.
class MessageBuilder {
 public:
  explicit MessageBuilder(ArgumentStyle style) : style_(style) {}

  api::Result<Value> Message(const api::Message& message, std::string_view suffix) {
    entries_.clear();
    error_.reset();
    Add(role_, "role", message.role, IsWellKnownRole(message.role) ? Trust::kTemplate : Trust::kRequest);
    Add(content_, "content", suffix.empty() ? message.content : message.content + std::string(suffix));
    if (!message.thinking.empty()) {
      Add(reasoning_content_, "thinking", message.thinking);
      entries_.emplace_back(thinking_, entries_.back().second);
    }
    if (!message.tool_calls.empty()) AddToolCalls(message.tool_calls);
    if (!message.tool_name.empty()) Add(name_, "name", message.tool_name);
    if (!message.tool_call_id.empty()) Add(tool_call_id_, "tool_call_id", message.tool_call_id);
    if (error_) return std::unexpected(*std::move(error_));
    return DictOf(std::move(entries_));
  }

 private:
  using Entries = std::vector<Value::Entry>;

  static Value DictOf(Entries entries) {
    return Value(std::make_shared<const jinja::Dict>(std::move(entries), jinja::Charge()));
  }

  Value Text(const char* field, std::string text, Trust trust = Trust::kRequest) {
    if (api::IsValidUtf8(text)) return Value::String(std::move(text), trust);
    error_ = api::Error{api::ErrorCode::kInvalidArgument, fmt::format("{} is not valid UTF-8", field), field};
    return Value();
  }

  void Add(const Value& key, const char* field, std::string text, Trust trust = Trust::kRequest) {
    entries_.emplace_back(key, Text(field, std::move(text), trust));
  }

  Value Arguments(const std::string& json) {
    const std::string& text = json.empty() ? kNoArguments : json;
    auto parsed = ReadRequestJson(json_, text, "arguments");
    if (!parsed) {
      error_ = std::move(parsed).error();
      return Value();
    }
    return style_ == ArgumentStyle::kObjects ? *std::move(parsed) : Text("arguments", text);
  }

  void AddToolCalls(const std::vector<api::ToolCall>& calls) {
    std::vector<Value> list;
    list.reserve(calls.size());
    for (const api::ToolCall& call : calls) {
      Entries function;
      function.emplace_back(name_, Text("name", call.name));
      function.emplace_back(arguments_, Arguments(call.arguments_json));
      Entries entry;
      if (!call.id.empty()) entry.emplace_back(id_, Text("id", call.id));
      entry.emplace_back(type_, function_);
      entry.emplace_back(function_, DictOf(std::move(function)));
      list.push_back(DictOf(std::move(entry)));
    }
    entries_.emplace_back(tool_calls_, Value::MakeList(std::move(list)));
  }

  inline static const std::string kNoArguments = "{}";

  ArgumentStyle style_;
  jinja::JsonReader json_{Trust::kRequest};  // of the arguments of all calls
  Entries entries_;
  std::optional<api::Error> error_;
  const Value role_ = Value::String("role");
  const Value content_ = Value::String("content");
  const Value reasoning_content_ = Value::String("reasoning_content");
  const Value thinking_ = Value::String("thinking");
  const Value tool_calls_ = Value::String("tool_calls");
  const Value name_ = Value::String("name");
  const Value tool_call_id_ = Value::String("tool_call_id");
  const Value id_ = Value::String("id");
  const Value type_ = Value::String("type");
  const Value function_ = Value::String("function");
  const Value arguments_ = Value::String("arguments");
};

}  // namespace

api::Result<Value> MessagesValue(std::span<const api::Message> messages, ArgumentStyle style,
                                 std::string_view suffix) {
  MessageBuilder builder(style);
  std::vector<Value> list;
  list.reserve(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    auto value = builder.Message(messages[i], i + 1 == messages.size() ? suffix : std::string_view());
    if (!value) {
      api::Error error = std::move(value).error();
      error.message = fmt::format("messages[{}]: {}", i, error.message);
      return std::unexpected(std::move(error));
    }
    list.push_back(*std::move(value));
  }
  return Value::MakeList(std::move(list));
}

api::Result<Value> ToolsValue(std::span<const api::Tool> tools, const Value& none) {
  if (tools.empty()) return none;
  jinja::JsonReader reader(Trust::kRequest);
  std::vector<Value> list;
  list.reserve(tools.size());
  for (const api::Tool& tool : tools) {
    auto definition = ReadRequestJson(reader, tool.definition_json, "tools");
    if (!definition) return definition;
    list.push_back(*std::move(definition));
  }
  return Value::MakeList(std::move(list));
}

api::Result<std::vector<std::pair<std::string, Value>>> ArgumentValues(const std::string& object_json) {
  constexpr const char* kField = "chat_template_kwargs";
  jinja::JsonReader reader(Trust::kRequest);
  const auto object = ReadRequestJson(reader, object_json, kField);
  if (!object) return std::unexpected(object.error());
  if (!object->is_dict()) {
    return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("{} is not an object", kField), kField);
  }
  std::vector<std::pair<std::string, Value>> values;
  for (const auto& [name, value] : object->as_dict().entries()) values.emplace_back(name.as_view(), value);
  return values;
}

}  // namespace quire::runner
