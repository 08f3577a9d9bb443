#include "runner/prompt/prompt_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "api/base/utf8.h"
#include "runner/prompt/documents.h"
#include "runner/prompt/go_prompt.h"
#include "runner/prompt/turn_probe.h"

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

// As strftime() writes it: the probes of a template give no date, and a library that asserts a valid one
// stops them.
std::string DateText(const std::tm& date) {
  char text[32];
  return {text, std::strftime(text, sizeof text, "%b %d %Y %H:%M:%S", &date)};
}

// The tools as one JSON text; empty without any.
jinja::Value FunctionsText(std::span<const api::Tool> tools) {
  std::string text;
  for (const api::Tool& tool : tools) text += (text.empty() ? "[" : ", ") + tool.definition_json;
  if (!text.empty()) text += ']';
  return jinja::Value::String(std::move(text), jinja::Trust::kRequest);
}

// Whether the template's own text has `placeholder` that often.
bool Shows(const jinja::TrackedText& rendered, std::string_view placeholder, size_t times) {
  jinja::ForEachRun(rendered.text, rendered.untrusted, [&](std::string_view run, jinja::Trust trust) {
    if (trust != jinja::Trust::kTemplate) return;
    for (size_t at = run.find(placeholder); at != std::string_view::npos;
         at = run.find(placeholder, at + placeholder.size())) {
      --times;  // below 0 it is larger than any number of images
    }
  });
  return times == 0;
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
                                                                         Tokens tokens,
                                                                         WriteCalls write_calls) {
  for (const auto& [name, text] : tokens) {
    if (api::IsValidUtf8(text)) continue;
    return api::Fail(api::ErrorCode::kBadModel, fmt::format("the model's {} is not valid UTF-8", name));
  }
  auto parsed = jinja::Template::Parse(source);
  if (!parsed) return std::unexpected(std::move(parsed).error());
  std::shared_ptr<PromptTemplate> made(
      new PromptTemplate(*std::move(parsed), std::move(tokens), std::move(write_calls)));
  made->no_tools_ = made->ProbeNoTools();
  made->style_ = made->ProbeArgumentStyle();
  made->Probe(source);
  return made;
}

api::Result<std::shared_ptr<const PromptTemplate>> PromptTemplate::ParseGo(std::string_view source,
                                                                           WriteCalls write_calls) {
  auto parsed = gotemplate::Template::Parse(source);
  if (parsed && !parsed->Uses("Messages") && !parsed->Uses("Response")) {
    parsed = gotemplate::Template::Parse(std::string(source) + "{{ .Response }}");
  }
  if (!parsed) return std::unexpected(std::move(parsed).error());
  std::shared_ptr<PromptTemplate> made(new PromptTemplate(*std::move(parsed), {}, std::move(write_calls)));
  made->go_source_ = source;
  if (made->write_calls_) made->Probe(source);
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
                                                                         std::string_view tool_use,
                                                                         std::string_view path, Tokens tokens,
                                                                         WriteCalls write_calls) {
  auto built = Parse(source, tokens, write_calls);
  if (!built && built.error().code == api::ErrorCode::kUnavailable) return std::unexpected(built.error());
  if (auto checked = Parse("", tokens, write_calls); !checked) {  // the tokens
    return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", path, checked.error().message));
  }
  std::shared_ptr<PromptTemplate> made(built ? new PromptTemplate(**built)
                                             : new PromptTemplate(built.error(), tokens, write_calls));
  if (!built) {
    made->notes_.push_back(fmt::format("{}; chats are refused", built.error().message));
    made->refusal_ =
        fmt::format("the model's chat template cannot be read, so it cannot chat: {}", built.error().message);
  }
  if (tool_use.empty()) return made;
  auto with_tools = Parse(tool_use, std::move(tokens), std::move(write_calls));
  if (with_tools) {
    for (const std::string& note : (*with_tools)->notes_) made->notes_.push_back("with tools, " + note);
    made->with_tools_ = *std::move(with_tools);
  } else {
    made->notes_.push_back(fmt::format("tool_use: {}; it is not used", with_tools.error().message));
  }
  return made;
}

std::shared_ptr<const PromptTemplate> PromptTemplate::Without(std::string refusal) {
  std::shared_ptr<PromptTemplate> made(
      new PromptTemplate(api::Error{api::ErrorCode::kUnsupported, refusal, {}}, {}, {}));
  made->refusal_ = std::move(refusal);
  return made;
}

// transformers passes None. Templates that go through the tools without asking whether there are any fail on
// that, and get an empty list.
jinja::Value PromptTemplate::ProbeNoTools() {
  const std::vector<api::Message> messages = {{.role = "user", .content = "q"}};
  const auto renders = [&] {
    return RenderText(messages, {}, {.add_generation_prompt = true}, rules_, style_).has_value();
  };
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
  const auto with = [&](ArgumentStyle style) { return RenderText(messages, {}, {}, rules_, style); };
  const auto objects = with(ArgumentStyle::kObjects);
  if (objects && !Contains(objects, "'needle'")) return ArgumentStyle::kObjects;
  return Contains(with(ArgumentStyle::kText), R"({"needle")") ? ArgumentStyle::kText
                                                              : ArgumentStyle::kObjects;
}

void PromptTemplate::Probe(std::string_view source) {
  const auto render = [&](std::span<const api::Message> messages, std::span<const api::Tool> tools,
                          const TurnRules& rules) -> api::Result<std::string> {
    auto rendered = RenderText(messages, tools, {.add_generation_prompt = true}, rules, style_);
    if (!rendered) return std::unexpected(std::move(rendered).error());
    return std::move(rendered->text);
  };
  TurnProbe probe = ProbeTurnRules(source, render);
  rules_ = probe.rules;
  notes_ = std::move(probe.notes);
  unserved_ = std::move(probe.unserved);
}

std::optional<PromptTemplate::Turns> PromptTemplate::ProbeTurns() const {
  const std::vector<api::Message> messages = {{.role = "user", .content = "q"}};
  const auto turn = RenderText(messages, {}, {}, rules_, style_);
  const auto whole = RenderText(messages, {}, {.add_generation_prompt = true}, rules_, style_);
  if (!turn || !whole) return std::nullopt;
  if (!whole->text.starts_with(turn->text)) return Turns{turn->text, {}};
  return Turns{turn->text, whole->text.substr(turn->text.size())};
}

api::Result<jinja::TrackedText> PromptTemplate::RenderJinja(std::span<const Turn> turns,
                                                            std::span<const api::Tool> tools,
                                                            const Setting& setting, const TurnRules& rules,
                                                            ArgumentStyle style) const {
  auto message_list = MessagesValue(turns, {style, rules.content_parts, rules.null_content}, setting.suffix);
  if (!message_list) return std::unexpected(std::move(message_list).error());
  auto tool_list = ToolsValue(tools, no_tools_, rules);
  if (!tool_list) return std::unexpected(std::move(tool_list).error());
  std::vector<std::pair<std::string, jinja::Value>> variables = {
      {"messages", *std::move(message_list)},
      {"tools", rules.tools_as_text ? no_tools_ : *std::move(tool_list)},
      {"documents", jinja::Value()},  // unless a request brings some
      {"add_generation_prompt", jinja::Value(setting.add_generation_prompt)}};
  if (rules.functions_text) {
    variables.emplace_back("functions",
                           FunctionsText(rules.tools_as_text ? std::span<const api::Tool>() : tools));
    variables.emplace_back("datetime", jinja::Value::String(DateText(setting.now)));
  }
  for (const auto& [name, text] : tokens_) variables.emplace_back(name, jinja::Value::String(text));
  const ThinkingSwitch& thinking = setting.thinking;
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
    for (auto& [name, value] : *arguments) {
      // Templates that know documents may iterate over the tools without asking whether there are any.
      if (name == "documents" && tools.empty()) variables.emplace_back("tools", jinja::Value::MakeList({}));
      variables.emplace_back(std::move(name), std::move(value));
    }
  }
  return std::get<jinja::Template>(template_).RenderTracked(jinja::Value::MakeDict(std::move(variables)),
                                                            {.now = setting.now});
}

api::Result<jinja::TrackedText> PromptTemplate::RenderText(std::span<const api::Message> messages,
                                                           std::span<const api::Tool> tools,
                                                           const Setting& setting, const TurnRules& rules,
                                                           ArgumentStyle style) const {
  if (!readable()) return api::Fail(api::ErrorCode::kUnsupported, refusal_, "messages");
  std::vector<Turn> turns = ArrangeTurns(messages, tools, rules, write_calls_);
  const auto* go = std::get_if<gotemplate::Template>(&template_);
  if (setting.spell_images)
    SpellImages(turns, setting.spelled.empty() ? setting.placeholder : setting.spelled);
  if (go == nullptr) return RenderJinja(turns, tools, setting, rules, style);
  if (const std::string& arguments = setting.thinking.arguments_json; HasDocuments(arguments)) {
    return api::Fail(api::ErrorCode::kUnsupported, "the model's template takes no documents", "documents");
  } else if (!arguments.empty()) {
    return api::Fail(api::ErrorCode::kUnsupported, "the model's template takes no variables of a request",
                     "chat_template_kwargs");
  }
  const ThinkingSwitch& thinking = setting.thinking;
  return RenderGoPrompt(
      *go, turns, rules.tools_as_text ? std::span<const api::Tool>() : tools, setting.suffix, setting.now,
      {.set = thinking.on.has_value(), .on = thinking.on.value_or(false), .level = thinking.effort});
}

api::Result<jinja::TrackedText> PromptTemplate::RenderAnyhow(std::span<const api::Message> messages,
                                                             std::span<const api::Tool> tools,
                                                             const Setting& setting) const {
  if (auto checked = CheckTexts(messages); !checked) return std::unexpected(std::move(checked).error());
  auto rendered = RenderText(messages, tools, setting, rules_, style_);
  if (rendered || rendered.error().code != api::ErrorCode::kInvalidArgument) return rendered;
  if (go_source_.empty() && !ToolsValue(tools, no_tools_)) return rendered;  // they are no JSON
  std::vector<TurnRules> attempts(2, rules_);
  attempts[0].complete_tools = attempts[0].complete_properties = attempts[0].single_types = true;
  attempts[1].tools_as_text = true;
  if (tools.empty()) attempts.clear();
  attempts.push_back(PlainestRules(rules_));
  for (const TurnRules& rules : attempts) {
    auto other = RenderText(messages, tools, setting, rules, style_);
    if (other) return other;
  }
  return rendered;
}

api::Result<jinja::TrackedText> PromptTemplate::RenderImages(std::span<const api::Message> messages,
                                                             std::span<const api::Tool> tools,
                                                             Setting setting) const {
  size_t images = 0;
  for (const api::Message& message : messages) images += message.images.size();
  if (images == 0) return RenderAnyhow(messages, tools, setting);
  const std::string_view placeholder = setting.placeholder;
  if (placeholder.empty())
    return api::Fail(api::ErrorCode::kUnsupported, "the model takes text only", "messages");
  if (go_source_.empty()) {
    if (auto checked = CheckTexts(messages); !checked) return std::unexpected(std::move(checked).error());
    auto rendered = RenderText(messages, tools, setting, rules_, style_);
    if (rendered && Shows(*rendered, placeholder, images)) return rendered;
  }
  setting.spell_images = true;
  auto rendered = RenderAnyhow(messages, tools, setting);
  if (!rendered || Shows(*rendered, placeholder, images)) return rendered;
  return api::Fail(api::ErrorCode::kUnsupported,
                   "the model's chat template does not show every image of the messages", "messages");
}

api::Result<std::vector<PromptSegment>> PromptTemplate::Render(
    std::span<const api::Message> messages, std::span<const api::Tool> tools, const std::tm& now,
    const ThinkingSwitch& thinking, api::PromptEnd ending, std::string_view placeholder,
    std::string_view spelled) const {
  if (with_tools_ != nullptr && !tools.empty())
    return with_tools_->Render(messages, tools, now, thinking, ending, placeholder, spelled);
  if (ending == api::PromptEnd::kMessages && !go_source_.empty()) {
    return api::Fail(api::ErrorCode::kUnsupported, "the model's template always begins an answer",
                     "add_generation_prompt");
  }
  // An assistant message without text is no answer to go on with: the model begins one.
  const bool may_continue = ending == api::PromptEnd::kAuto || ending == api::PromptEnd::kLastMessage;
  const bool to_continue = may_continue && !messages.empty() && messages.back().role == "assistant" &&
                           !messages.back().content.empty() && messages.back().tool_calls.empty();
  const Setting setting = {.suffix = to_continue ? kEndMark : std::string_view(),
                           .add_generation_prompt = !to_continue && ending != api::PromptEnd::kMessages,
                           .now = now,
                           .thinking = thinking,
                           .placeholder = placeholder,
                           .spelled = spelled};
  const auto rendered = RenderImages(messages, tools, setting);
  if (!rendered) return std::unexpected(rendered.error());
  if (HasDocuments(thinking.arguments_json)) {
    Setting without = setting;
    without.thinking.arguments_json.clear();
    const auto other = RenderImages(messages, tools, without);
    const bool ignored = other && other->text == rendered->text;
    if (auto checked = CheckDocuments(thinking.arguments_json, ignored ? "" : rendered->text); !checked)
      return std::unexpected(std::move(checked).error());
  }
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
