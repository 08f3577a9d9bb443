#include "runner/prompt/prompt_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/base/utf8.h"
#include "runner/prompt/go_prompt.h"

namespace quire::runner {
namespace {

// Stands behind the content of an answer to go on with while it is rendered, and shows where that content
// ends, whatever the template puts behind it. No template trims, splits at or replaces private-use code
// points.
constexpr std::string_view kEndMark = "\uE000\uE001\uE000";

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

bool Contains(const api::Result<jinja::TrackedText>& rendered, std::string_view part) {
  return rendered && rendered->text.find(part) != std::string::npos;
}

}  // namespace

std::tm LocalTime(int64_t seconds) {
  const std::time_t time = seconds != 0 ? static_cast<std::time_t>(seconds) : std::time(nullptr);
  std::tm local = {};
  localtime_r(&time, &local);
  return local;
}

api::Result<std::shared_ptr<const PromptTemplate>> PromptTemplate::Parse(std::string_view source,
                                                                         Tokens tokens) {
  for (const auto& [name, text] : tokens) {
    if (api::IsValidUtf8(text)) continue;
    return api::Fail(api::ErrorCode::kBadModel, fmt::format("the model's {} is not valid UTF-8", name));
  }
  auto parsed = jinja::Template::Parse(source);
  if (!parsed) return std::unexpected(std::move(parsed).error());
  std::shared_ptr<PromptTemplate> made(new PromptTemplate(*std::move(parsed), std::move(tokens)));
  made->no_tools_ = made->ProbeNoTools();
  made->style_ = made->ProbeArgumentStyle();
  return made;
}

api::Result<std::shared_ptr<const PromptTemplate>> PromptTemplate::ParseGo(std::string_view source) {
  auto parsed = gotemplate::Template::Parse(source);
  if (parsed && !parsed->Uses("Messages") && !parsed->Uses("Response")) {
    parsed = gotemplate::Template::Parse(std::string(source) + "{{ .Response }}");
  }
  if (!parsed) return std::unexpected(std::move(parsed).error());
  std::shared_ptr<PromptTemplate> made(new PromptTemplate(*std::move(parsed), {}));
  made->go_source_ = source;
  return made;
}

bool PromptTemplate::UsesGo(std::string_view field) const {
  const auto* go = std::get_if<gotemplate::Template>(&template_);
  return go != nullptr && go->Uses(field);
}

api::Result<std::vector<PromptSegment>> PromptTemplate::RenderFim(std::string_view prefix,
                                                                  std::string_view suffix,
                                                                  const std::tm& now) const {
  if (!SupportsFim()) {
    return api::Fail(api::ErrorCode::kUnsupported, "the model's template does not use .Suffix", "suffix");
  }
  const auto rendered = RenderGoFim(std::get<gotemplate::Template>(template_), prefix, suffix, now);
  if (!rendered) return std::unexpected(rendered.error());
  return Segments(*rendered, rendered->text.size());
}

api::Result<std::shared_ptr<const PromptTemplate>> PromptTemplate::Build(std::string_view source,
                                                                         std::string_view path,
                                                                         Tokens tokens) {
  auto built = Parse(source, std::move(tokens));
  if (!built) {
    return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", path, built.error().message));
  }
  return built;
}

std::shared_ptr<const PromptTemplate> PromptTemplate::Without(std::string refusal) {
  std::shared_ptr<PromptTemplate> made(new PromptTemplate(jinja::Template::Parse("").value(), {}));
  made->refusal_ = std::move(refusal);
  return made;
}

// transformers passes None. Templates that go through the tools without asking whether there are any fail on
// that, and get an empty list.
jinja::Value PromptTemplate::ProbeNoTools() {
  const std::vector<api::Message> messages = {{.role = "user", .content = "q"}};
  const auto renders = [&] { return RenderText(messages, {}, {}, true, style_, std::tm{}).has_value(); };
  if (renders()) return jinja::Value();
  no_tools_ = jinja::Value::MakeList({});
  return renders() ? no_tools_ : jinja::Value();
}

// Templates do not say which style they want. One that pastes arguments into the prompt fails on an object,
// or shows it the way Python would.
ArgumentStyle PromptTemplate::ProbeArgumentStyle() const {
  const std::vector<api::Message> messages = {
      {.role = "user", .content = "q"},
      {.role = "assistant", .content = "", .tool_calls = {{"call00001", "f", R"({"needle": "hay"})"}}},
      {.role = "tool", .content = "r", .tool_name = "f", .tool_call_id = "call00001"}};
  const auto with = [&](ArgumentStyle style) {
    return RenderText(messages, {}, {}, false, style, std::tm{});
  };
  const auto objects = with(ArgumentStyle::kObjects);
  if (objects && !Contains(objects, "'needle'")) return ArgumentStyle::kObjects;
  return Contains(with(ArgumentStyle::kText), R"({"needle")") ? ArgumentStyle::kText
                                                              : ArgumentStyle::kObjects;
}

std::optional<PromptTemplate::Turns> PromptTemplate::ProbeTurns() const {
  const std::vector<api::Message> messages = {{.role = "user", .content = "q"}};
  const auto turn = RenderText(messages, {}, {}, false, style_, std::tm{});
  const auto whole = RenderText(messages, {}, {}, true, style_, std::tm{});
  if (!turn || !whole) return std::nullopt;
  if (!whole->text.starts_with(turn->text)) return Turns{turn->text, {}};
  return Turns{turn->text, whole->text.substr(turn->text.size())};
}

api::Result<jinja::TrackedText> PromptTemplate::RenderText(std::span<const api::Message> messages,
                                                           std::span<const api::Tool> tools,
                                                           std::string_view suffix,
                                                           bool add_generation_prompt, ArgumentStyle style,
                                                           const std::tm& now,
                                                           const ThinkingSwitch& thinking) const {
  if (const auto* go = std::get_if<gotemplate::Template>(&template_)) {
    if (!thinking.arguments_json.empty()) {
      return api::Fail(api::ErrorCode::kUnsupported, "the model's template takes no variables of a request",
                       "chat_template_kwargs");
    }
    return RenderGoPrompt(
        *go, messages, tools, suffix, now,
        {.set = thinking.on.has_value(), .on = thinking.on.value_or(false), .level = thinking.effort});
  }
  auto message_list = MessagesValue(messages, style, suffix);
  if (!message_list) return std::unexpected(std::move(message_list).error());
  auto tool_list = ToolsValue(tools, no_tools_);
  if (!tool_list) return std::unexpected(std::move(tool_list).error());
  std::vector<std::pair<std::string, jinja::Value>> variables = {
      {"messages", *std::move(message_list)},
      {"tools", *std::move(tool_list)},
      {"documents", jinja::Value()},
      {"add_generation_prompt", jinja::Value(add_generation_prompt)}};
  for (const auto& [name, text] : tokens_) variables.emplace_back(name, jinja::Value::String(text));
  if (thinking.on) {
    for (const char* name : {"enable_thinking", "thinking"})
      variables.emplace_back(name, jinja::Value(*thinking.on));
  }
  if (!thinking.effort.empty()) {
    variables.emplace_back("reasoning_effort", jinja::Value::String(thinking.effort));
  }
  if (!thinking.arguments_json.empty()) {
    auto arguments = ArgumentValues(thinking.arguments_json);
    if (!arguments) return std::unexpected(std::move(arguments).error());
    std::ranges::move(*arguments, std::back_inserter(variables));
  }
  return std::get<jinja::Template>(template_).RenderTracked(jinja::Value::MakeDict(std::move(variables)),
                                                            {.now = now});
}

api::Result<std::vector<PromptSegment>> PromptTemplate::Render(std::span<const api::Message> messages,
                                                               std::span<const api::Tool> tools,
                                                               const std::tm& now,
                                                               const ThinkingSwitch& thinking,
                                                               api::PromptEnd ending) const {
  if (!refusal_.empty()) return api::Fail(api::ErrorCode::kUnsupported, refusal_, "messages");
  if (ending == api::PromptEnd::kMessages && !go_source_.empty()) {
    return api::Fail(api::ErrorCode::kUnsupported, "the model's template always begins an answer",
                     "add_generation_prompt");
  }
  // An assistant message without text is no answer to go on with: the model begins one.
  const bool may_continue = ending == api::PromptEnd::kAuto || ending == api::PromptEnd::kLastMessage;
  const bool to_continue = may_continue && !messages.empty() && messages.back().role == "assistant" &&
                           !messages.back().content.empty() && messages.back().tool_calls.empty();
  const auto rendered =
      RenderText(messages, tools, to_continue ? kEndMark : std::string_view(),
                 !to_continue && ending != api::PromptEnd::kMessages, style_, now, thinking);
  if (!rendered) return std::unexpected(rendered.error());
  const size_t end = to_continue ? rendered->text.rfind(kEndMark) : rendered->text.size();
  if (end == std::string::npos) {
    return api::Fail(
        api::ErrorCode::kUnsupported,
        "the model's chat template does not show the last assistant message, so it cannot be continued",
        "messages");
  }
  return Segments(*rendered, end);
}

api::Result<std::vector<PromptSegment>> PromptTemplate::Render(std::span<const api::Message> messages,
                                                               std::span<const api::Tool> tools,
                                                               const ThinkingSwitch& thinking,
                                                               api::PromptEnd ending) const {
  return Render(messages, tools, LocalTime(0), thinking, ending);
}

}  // namespace quire::runner
