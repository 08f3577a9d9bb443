// Calls whose arguments are JSON.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "api/json/read.h"
#include "runner/output/text.h"
#include "runner/output/tool_call_syntax.h"

namespace quire::runner::output {
namespace {

using api::Json;

constexpr std::string_view kArgs = "[ARGS]";
constexpr std::string_view kCallId = "[CALL_ID]";

const Json* NonNullMember(const Json& object, std::string_view name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::string> ArgumentsText(const Json* arguments) {
  if (arguments == nullptr) return "{}";
  if (arguments->is_object()) return api::DumpJson(*arguments);
  if (!arguments->is_string()) return std::nullopt;
  const auto parsed = api::ReadJson(arguments->get_ref<const std::string&>());
  if (!parsed || !parsed->is_object()) return std::nullopt;
  return api::DumpJson(*parsed);
}

std::optional<api::ToolCall> CallOf(const Json& value) {
  if (!value.is_object()) return std::nullopt;
  const Json* function = NonNullMember(value, "function");
  const Json& described = function != nullptr && function->is_object() ? *function : value;
  const Json* name = NonNullMember(described, "name");
  if (name == nullptr) name = NonNullMember(described, "tool_name");
  if (name == nullptr && function != nullptr && function->is_string()) name = function;
  if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    return std::nullopt;
  }
  const Json* arguments = NonNullMember(described, "arguments");
  if (arguments == nullptr) arguments = NonNullMember(described, "parameters");
  auto text = ArgumentsText(arguments);
  if (!text) return std::nullopt;
  api::ToolCall call{.id = {}, .name = name->get<std::string>(), .arguments_json = *std::move(text)};
  const Json* id = NonNullMember(value, "id");
  if (id != nullptr && id->is_string()) call.id = id->get<std::string>();
  return call;
}

bool AppendCalls(const Json& value, std::vector<api::ToolCall>& calls) {
  if (!value.is_array()) {
    auto call = CallOf(value);
    if (!call) return false;
    calls.push_back(*std::move(call));
    return true;
  }
  return !value.empty() && std::ranges::all_of(value, [&](const Json& one) {
    return !one.is_array() && AppendCalls(one, calls);
  });
}

// The arguments of one call, an object that takes up the whole text.
Reading ReadArguments(std::string_view text, std::string name, std::string id,
                      std::vector<api::ToolCall>& calls) {
  if (text.empty()) return Reading::kIncomplete;
  if (name.empty() || text.front() != '{') return Reading::kMalformed;
  ValueEnd end;
  const auto state = end.Advance(text);
  if (state == ValueEnd::State::kOpen) return Reading::kIncomplete;
  const auto value = api::ReadJson(text);
  if (state == ValueEnd::State::kBroken || !value || !value->is_object()) return Reading::kMalformed;
  calls.push_back({std::move(id), std::move(name), api::DumpJson(*value)});
  return Reading::kCalls;
}

}  // namespace

ValueEnd::State ValueEnd::Advance(std::string_view text) {
  while (at_ < text.size()) {
    const char c = text[at_++];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      if (open_.size() == kJsonDepthMax) return State::kBroken;
      open_.push_back(c);
    } else if (c == '}' || c == ']') {
      if (open_.empty() || open_.back() != (c == '}' ? '{' : '[')) return State::kBroken;
      open_.pop_back();
      if (open_.empty()) return State::kEnded;
    }
  }
  return State::kOpen;
}

Reading ReadJsonCalls(std::string_view text, const Tools&, std::vector<api::ToolCall>& calls) {
  std::vector<api::ToolCall> read;
  text = TrimLeft(text);
  if (text.empty()) return Reading::kIncomplete;
  while (!text.empty()) {
    if (text.front() != '{' && text.front() != '[') return Reading::kMalformed;
    ValueEnd end;
    switch (end.Advance(text)) {
      case ValueEnd::State::kOpen:
        return Reading::kIncomplete;
      case ValueEnd::State::kBroken:
        return Reading::kMalformed;
      case ValueEnd::State::kEnded:
        break;
    }
    const auto value = api::ReadJson(text.substr(0, end.size()));
    if (!value || !AppendCalls(*value, read)) return Reading::kMalformed;
    text = TrimLeft(text.substr(end.size()));
    if (text.starts_with(',') || text.starts_with(';')) text = TrimLeft(text.substr(1));
  }
  std::ranges::move(read, std::back_inserter(calls));
  return Reading::kCalls;
}

Reading ReadKeyedCalls(std::string_view text, const Tools&, std::vector<api::ToolCall>& calls) {
  text = Trim(text);
  if (text.empty()) return Reading::kIncomplete;
  if (text.front() != '[') return Reading::kMalformed;
  ValueEnd end;
  const auto state = end.Advance(text);
  if (state == ValueEnd::State::kOpen) return Reading::kIncomplete;
  const auto value = api::ReadJson(text);
  if (!value || !value->is_array() || value->empty()) return Reading::kMalformed;
  std::vector<api::ToolCall> read;
  read.reserve(value->size());
  for (const Json& one : *value) {
    if (!one.is_object() || one.size() != 1 || !one.front().is_object()) return Reading::kMalformed;
    read.push_back({{}, one.begin().key(), api::DumpJson(one.front())});
  }
  std::ranges::move(read, std::back_inserter(calls));
  return Reading::kCalls;
}

Reading ReadFunctionCall(std::string_view text, const Tools&, std::vector<api::ToolCall>& calls) {
  const size_t name_end = text.find('>');
  if (name_end == std::string_view::npos) return Reading::kIncomplete;
  return ReadArguments(Trim(text.substr(name_end + 1)), std::string(Trim(text.substr(0, name_end))), {},
                       calls);
}

Reading ReadMistralCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls) {
  text = Trim(text);
  if (text.starts_with('[') || text.starts_with('{')) return ReadJsonCalls(text, tools, calls);
  const size_t begin = text.find('{');
  if (begin == std::string_view::npos) return Reading::kIncomplete;
  std::string_view head = Trim(text.substr(0, begin));
  if (head.ends_with(kArgs)) head = Trim(head.substr(0, head.size() - kArgs.size()));
  std::string_view id;
  if (const size_t id_mark = head.find(kCallId); id_mark != std::string_view::npos) {
    id = Trim(head.substr(id_mark + kCallId.size()));
    head = Trim(head.substr(0, id_mark));
  }
  return ReadArguments(text.substr(begin), std::string(head), std::string(id), calls);
}

}  // namespace quire::runner::output
