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
#include "runner/jinja/text.h"

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

Value DictOf(std::vector<Value::Entry> entries) {
  return Value(std::make_shared<const jinja::Dict>(std::move(entries), jinja::Charge()));
}

const Value* Member(const Value& dict, std::string_view name) {
  const Value* found = dict.is_dict() ? dict.as_dict().Find(name) : nullptr;
  return found == nullptr || found->is_none() ? nullptr : found;
}

// The dict with another value of a member, in its place or at the end.
Value With(const Value& dict, const char* name, Value value) {
  std::vector<Value::Entry> entries = dict.as_dict().entries();
  entries.emplace_back(Value::String(name),
                       std::move(value));  // of equal keys the last value counts, at the first place
  return DictOf(std::move(entries));
}

// A schema of a tool's arguments with what templates read without asking whether it is there. Its depth is
// bounded by JsonReader.
Value CompleteSchema(Value schema, const TurnRules& rules, bool property) {
  if (schema.is_list()) {
    std::vector<Value> items;
    for (const Value& item : schema.as_list().items) items.push_back(CompleteSchema(item, rules, false));
    return Value::MakeList(std::move(items));
  }
  if (!schema.is_dict()) return schema;
  if (rules.complete_properties && property && Member(schema, "description") == nullptr) {
    schema = With(schema, "description", Value::String(""));
  }
  if (const Value* type = Member(schema, "type"); rules.single_types && type != nullptr && type->is_list()) {
    const auto& types = type->as_list().items;
    const auto one = std::ranges::find_if(
        types, [](const Value& name) { return name.is_string() && name.as_view() != "null"; });
    if (!types.empty()) schema = With(schema, "type", one == types.end() ? types.front() : *one);
  }
  if (const Value* properties = Member(schema, "properties");
      properties != nullptr && properties->is_dict()) {
    std::vector<Value::Entry> entries;
    for (const auto& [name, value] : properties->as_dict().entries()) {
      // `true` allows everything, as {} does.
      const bool any = rules.complete_properties && value.kind() == jinja::Kind::kBool;
      entries.emplace_back(name, CompleteSchema(any ? DictOf({}) : value, rules, true));
    }
    schema = With(schema, "properties", DictOf(std::move(entries)));
  }
  for (const char* inner : {"items", "anyOf", "oneOf", "allOf"}) {
    if (const Value* member = Member(schema, inner); member != nullptr) {
      schema = With(schema, inner, CompleteSchema(*member, rules, false));
    }
  }
  return schema;
}

Value CompleteTool(const Value& definition, const TurnRules& rules) {
  if (!rules.complete_tools && !rules.complete_properties && !rules.single_types) return definition;
  const Value* found = Member(definition, "function");
  if (found == nullptr || !found->is_dict()) return definition;
  Value function = *found;
  if (rules.complete_tools && Member(function, "description") == nullptr) {
    function = With(function, "description", Value::String(""));
  }
  const Value* parameters = Member(function, "parameters");
  Value schema = parameters == nullptr ? DictOf({}) : *parameters;
  if (rules.complete_tools && schema.is_dict()) {
    if (Member(schema, "type") == nullptr) schema = With(schema, "type", Value::String("object"));
    if (Member(schema, "properties") == nullptr) schema = With(schema, "properties", DictOf({}));
  }
  if (parameters != nullptr || rules.complete_tools) {
    function = With(function, "parameters", CompleteSchema(std::move(schema), rules, false));
  }
  return With(definition, "function", std::move(function));
}

// Makes the dicts of one conversation; they share their keys.
class MessageBuilder {
 public:
  explicit MessageBuilder(const ValueForm& form) : form_(form) {}

  api::Result<Value> Message(const Turn& turn, std::string_view suffix) {
    const api::Message& message = turn.message;
    entries_.clear();
    error_.reset();
    Add(role_, message.role, IsWellKnownRole(message.role) ? Trust::kTemplate : Trust::kRequest);
    entries_.emplace_back(content_, Content(turn, suffix));
    if (!message.thinking.empty()) {
      Add(reasoning_content_, message.thinking);
      entries_.emplace_back(thinking_, entries_.back().second);
    }
    if (!message.tool_calls.empty()) AddToolCalls(message.tool_calls);
    if (!message.tool_name.empty()) Add(name_, message.tool_name);
    if (!message.tool_call_id.empty()) Add(tool_call_id_, message.tool_call_id);
    if (error_) return std::unexpected(*std::move(error_));
    return DictOf(std::move(entries_));
  }

 private:
  using Entries = std::vector<Value::Entry>;

  static Value Text(std::string text, Trust trust = Trust::kRequest) {
    return Value::String(std::move(text), trust);
  }

  // The text, a list of one part that is it, or a list with images.
  Value Content(const Turn& turn, std::string_view suffix) {
    const api::Message& message = turn.message;
    const size_t size = message.content.size();
    const bool empty = size == 0 && suffix.empty();
    if (!message.images.empty()) return Parts(turn, suffix);
    if (empty && form_.null_content && !message.tool_calls.empty()) return Value();
    Value value = Piece(turn, 0, size, suffix);
    if ((form_.content_parts & PartOf(message.role)) == 0) return value;
    return Value::MakeList({TextPart(std::move(value))});
  }

  Value Parts(const Turn& turn, std::string_view suffix) {
    std::vector<Value> parts;
    size_t from = 0;
    const auto add = [&](size_t to, std::string_view behind) {
      if (to > from || !behind.empty()) parts.push_back(TextPart(Piece(turn, from, to, behind)));
      from = to;
    };
    for (const api::Image& image : turn.message.images) {
      add(image.at, {});
      parts.push_back(DictOf({{type_, image_}}));
    }
    add(turn.message.content.size(), suffix);
    return Value::MakeList(std::move(parts));
  }

  Value TextPart(Value text) { return DictOf({{type_, text_}, {text_, std::move(text)}}); }

  // Bytes [begin, end) of the content, and `suffix`.
  static Value Piece(const Turn& turn, size_t begin, size_t end, std::string_view suffix) {
    std::string text = turn.message.content.substr(begin, end - begin) + std::string(suffix);
    if (turn.markers.empty()) return Text(std::move(text));
    std::vector<jinja::ByteRange> untrusted;
    size_t at = 0;
    for (const jinja::ByteRange& marker : turn.markers) {
      if (marker.end <= begin || marker.begin >= end) continue;
      if (marker.begin > begin + at) untrusted.push_back({at, marker.begin - begin});
      at = std::min(marker.end, end) - begin;
    }
    if (at < text.size()) untrusted.push_back({at, text.size()});
    return Value(
        std::make_shared<const jinja::Text>(std::move(text), std::move(untrusted), false, jinja::Charge()));
  }

  static uint8_t PartOf(std::string_view role) {
    if (role == "system") return TurnRules::kSystemPart;
    if (role == "assistant") return TurnRules::kAssistantPart;
    return role == "tool" ? TurnRules::kToolPart : TurnRules::kUserPart;
  }

  void Add(const Value& key, std::string text, Trust trust = Trust::kRequest) {
    entries_.emplace_back(key, Text(std::move(text), trust));
  }

  // Models write malformed arguments, and clients send them back: they are shown, not refused.
  Value Arguments(const std::string& json) {
    const std::string& text = json.find_first_not_of(" \t\r\n") == std::string::npos ? kNoArguments : json;
    Value shown = Text(text);
    if (form_.arguments == ArgumentStyle::kText) return shown;
    auto parsed = ReadRequestJson(json_, text, "arguments");
    if (!parsed && parsed.error().code != api::ErrorCode::kInvalidArgument) {
      error_ = std::move(parsed).error();
      return Value();
    }
    if (parsed && parsed->is_none()) return DictOf({});
    if (parsed && parsed->is_dict()) return *std::move(parsed);
    return DictOf({{raw_, std::move(shown)}});
  }

  void AddToolCalls(const std::vector<api::ToolCall>& calls) {
    std::vector<Value> list;
    list.reserve(calls.size());
    for (const api::ToolCall& call : calls) {
      Entries function;
      function.emplace_back(name_, Text(call.name));
      function.emplace_back(arguments_, Arguments(call.arguments_json));
      Entries entry;
      if (!call.id.empty()) entry.emplace_back(id_, Text(call.id));
      entry.emplace_back(type_, function_);
      entry.emplace_back(function_, DictOf(std::move(function)));
      list.push_back(DictOf(std::move(entry)));
    }
    entries_.emplace_back(tool_calls_, Value::MakeList(std::move(list)));
  }

  inline static const std::string kNoArguments = "{}";

  const ValueForm& form_;
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
  const Value text_ = Value::String("text");
  const Value image_ = Value::String("image");
  const Value raw_ = Value::String("_raw");
  const Value arguments_ = Value::String("arguments");
};

// Ascending, on borders of characters.
api::Result<void> CheckPlaces(const api::Message& message, size_t index) {
  size_t from = 0;
  for (const api::Image& image : message.images) {
    const bool inside =
        image.at < message.content.size() && api::IsContinuationByte(message.content[image.at]);
    if (image.at < from || image.at > message.content.size() || inside) {
      return api::Fail(api::ErrorCode::kInvalidArgument,
                       fmt::format("messages[{}]: no image can stand at byte {}", index, image.at), "images");
    }
    from = image.at;
  }
  return {};
}

}  // namespace

api::Result<void> CheckTexts(std::span<const api::Message> messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const api::Message& message = messages[i];
    const char* wrong = nullptr;
    const auto check = [&wrong](const char* field, std::string_view text) {
      if (wrong == nullptr && !api::IsValidUtf8(text)) wrong = field;
    };
    check("role", message.role);
    check("content", message.content);
    check("thinking", message.thinking);
    for (const api::ToolCall& call : message.tool_calls) {
      check("id", call.id);
      check("name", call.name);
      check("arguments", call.arguments_json);
    }
    check("name", message.tool_name);
    check("tool_call_id", message.tool_call_id);
    if (auto placed = CheckPlaces(message, i); !placed) return placed;
    if (wrong == nullptr) continue;
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("messages[{}]: {} is not valid UTF-8", i, wrong), wrong);
  }
  return {};
}

api::Result<Value> MessagesValue(std::span<const Turn> turns, const ValueForm& form,
                                 std::string_view suffix) {
  MessageBuilder builder(form);
  std::vector<Value> list;
  list.reserve(turns.size());
  for (size_t i = 0; i < turns.size(); ++i) {
    auto value = builder.Message(turns[i], i + 1 == turns.size() ? suffix : std::string_view());
    if (!value) {
      api::Error error = std::move(value).error();
      error.message = fmt::format("messages[{}]: {}", i, error.message);
      return std::unexpected(std::move(error));
    }
    list.push_back(*std::move(value));
  }
  return Value::MakeList(std::move(list));
}

api::Result<Value> ToolsValue(std::span<const api::Tool> tools, const Value& none, const TurnRules& rules) {
  if (tools.empty()) return none;
  jinja::JsonReader reader(Trust::kRequest);
  std::vector<Value> list;
  list.reserve(tools.size());
  for (const api::Tool& tool : tools) {
    auto definition = ReadRequestJson(reader, tool.definition_json, "tools");
    if (!definition) return definition;
    list.push_back(CompleteTool(*definition, rules));
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
