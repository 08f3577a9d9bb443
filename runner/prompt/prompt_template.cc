#include "runner/prompt/prompt_template.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace quire::runner {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kChatMl =
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

// Text that JSON and templates can hold: the dialects deliver UTF-8, other callers are held to it here.
api::Result<Json> ParseRequestJson(const std::string& text, const char* field) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded())
    return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("{} is not JSON", field), field);
  return json;
}

// Messages as transformers hands them to templates: absent parts are absent, arguments are objects.
api::Result<Json> MessageJson(const api::Message& message) {
  Json json = {{"role", message.role}, {"content", message.content}};
  if (!message.thinking.empty()) json["reasoning_content"] = json["thinking"] = message.thinking;
  if (!message.tool_name.empty()) json["name"] = message.tool_name;
  if (!message.tool_call_id.empty()) json["tool_call_id"] = message.tool_call_id;
  for (const auto& call : message.tool_calls) {
    auto arguments = ParseRequestJson(call.arguments_json.empty() ? "{}" : call.arguments_json, "arguments");
    if (!arguments) return std::unexpected(arguments.error());
    Json entry = {{"type", "function"},
                  {"function", {{"name", call.name}, {"arguments", std::move(*arguments)}}}};
    if (!call.id.empty()) entry["id"] = call.id;
    json["tool_calls"].push_back(std::move(entry));
  }
  return json;
}

api::Result<jinja::Value> MessagesValue(std::span<const api::Message> messages) {
  Json list = Json::array();
  for (const auto& message : messages) {
    auto json = MessageJson(message);
    if (!json) return std::unexpected(json.error());
    list.push_back(std::move(*json));
  }
  return jinja::FromJson(list, jinja::Trust::kRequest);
}

api::Result<jinja::Value> ToolsValue(const std::string& tools_json) {
  if (tools_json.empty()) return jinja::Value();
  auto tools = ParseRequestJson(tools_json, "tools");
  if (!tools) return std::unexpected(tools.error());
  if (tools->empty()) return jinja::Value();
  return jinja::FromJson(*tools, jinja::Trust::kRequest);
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// Where the content of the last message ends in the rendered text; templates may trim it.
std::optional<size_t> EndOfContent(const std::string& rendered, std::string_view content) {
  for (const std::string_view form : {content, Trim(content)}) {
    const size_t at = rendered.rfind(form);
    if (at != std::string::npos) return at + form.size();
  }
  return std::nullopt;
}

std::vector<PromptSegment> Segments(const jinja::TrackedText& tracked, size_t end) {
  std::vector<PromptSegment> segments;
  size_t at = 0;
  const auto add = [&](size_t to, bool from_template) {
    to = std::min(to, end);
    if (to > at) segments.push_back({tracked.text.substr(at, to - at), from_template});
    at = std::max(at, to);
  };
  for (const auto& range : tracked.untrusted) {
    add(range.begin, true);
    add(range.end, false);
  }
  add(end, true);
  return segments;
}

}  // namespace

api::Result<std::shared_ptr<const PromptTemplate>> PromptTemplate::Parse(std::string_view source,
                                                                         std::string bos, std::string eos) {
  auto parsed = jinja::Template::Parse(source);
  if (!parsed) return std::unexpected(parsed.error());
  return std::shared_ptr<const PromptTemplate>(
      new PromptTemplate(std::move(*parsed), std::move(bos), std::move(eos)));
}

api::Result<std::shared_ptr<const PromptTemplate>> PromptTemplate::Build(const weights::ModelFiles& files,
                                                                         std::string bos, std::string eos) {
  const std::string source = files.chat_template();
  auto built = Parse(source.empty() ? kChatMl : std::string_view(source), std::move(bos), std::move(eos));
  if (!built) {
    return api::Fail(api::ErrorCode::kBadModel,
                     fmt::format("{}: chat template: {}", files.path(), built.error().message));
  }
  return built;
}

api::Result<std::vector<PromptSegment>> PromptTemplate::Render(std::span<const api::Message> messages,
                                                               const std::string& tools_json,
                                                               const std::tm& now) const {
  // An assistant message without text is no answer to go on with: the model begins one.
  const bool to_continue = !messages.empty() && messages.back().role == "assistant" &&
                           !messages.back().content.empty() && messages.back().tool_calls.empty();
  auto message_list = MessagesValue(messages);
  if (!message_list) return std::unexpected(message_list.error());
  auto tools = ToolsValue(tools_json);
  if (!tools) return std::unexpected(tools.error());
  const auto variables = jinja::Value::MakeDict({{"messages", std::move(*message_list)},
                                                 {"tools", std::move(*tools)},
                                                 {"documents", jinja::Value()},
                                                 {"add_generation_prompt", jinja::Value(!to_continue)},
                                                 {"bos_token", jinja::Value::String(bos_)},
                                                 {"eos_token", jinja::Value::String(eos_)}});
  const auto rendered = template_.RenderTracked(variables, {.now = now});
  if (!rendered) return std::unexpected(rendered.error());
  size_t end = rendered->text.size();
  if (to_continue) {
    const auto content_end = EndOfContent(rendered->text, messages.back().content);
    if (!content_end) {
      return api::Fail(
          api::ErrorCode::kUnsupported,
          "the model's chat template does not show the last assistant message, so it cannot be continued",
          "messages");
    }
    end = *content_end;
  }
  return Segments(*rendered, end);
}

api::Result<std::vector<PromptSegment>> PromptTemplate::Render(std::span<const api::Message> messages,
                                                               const std::string& tools_json) const {
  const std::time_t seconds = std::time(nullptr);
  std::tm now = {};
  localtime_r(&seconds, &now);
  return Render(messages, tools_json, now);
}

}  // namespace quire::runner
