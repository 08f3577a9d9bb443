#include "api/openai/template_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "api/json/read.h"
#include "api/json/tool_fields.h"

namespace quire::api::openai {
namespace {

// Variables that the server sets.
constexpr auto kReserved = std::to_array<std::string_view>(
    {"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"});

// A switch of thinking that was given at one place or several, which must agree.
class ThinkSwitch {
 public:
  void Read(Fields& fields, std::string_view name) {
    bool on = false;
    if (fields.Get(name, on)) Set(fields, name, on);
  }
  void Set(Fields& fields, std::string_view name, bool on) {
    if (on_ && *on_ != on) fields.Reject(name, "contradicts another field about thinking");
    on_ = on;
  }
  std::optional<bool> on() const { return on_; }

 private:
  std::optional<bool> on_;
};

void GetArguments(Fields& body, ThinkSwitch& thinking, TemplateFields& out) {
  const Json* object = body.FindObject("chat_template_kwargs");
  if (object == nullptr) return;
  Fields fields(*object, body.PathOf("chat_template_kwargs"), body.error());
  for (const char* name : {"enable_thinking", "thinking"}) thinking.Read(fields, name);
  const Think effort = GetEffort(fields, "reasoning_effort");
  if (out.think == Think::kUnset) out.think = effort;
  Json rest = Json::object();
  for (const auto& [name, value] : object->get_ref<const Json::object_t&>()) {
    if (std::ranges::find(kReserved, name) != kReserved.end())
      return fields.Reject(name, "is a variable that the server sets");
    if (name != "enable_thinking" && name != "thinking" && name != "reasoning_effort") rest[name] = value;
  }
  if (!rest.empty()) out.arguments_json = DumpJson(rest);
}

// "thinking": {"type": "enabled" | "disabled" | "auto", "budget_tokens"}, or a boolean.
void GetThinkingObject(Fields& body, ThinkSwitch& thinking, TemplateFields& out) {
  constexpr std::string_view kName = "thinking";
  const Json* value = body.Find(kName);
  if (value == nullptr || value->is_boolean()) return thinking.Read(body, kName);
  Fields fields(*value, body.PathOf(kName), body.error());
  std::string type;
  fields.Get("type", type);
  if (type == "enabled" || type == "disabled") {
    thinking.Set(fields, "type", type == "enabled");
  } else if (type != "auto" && type != "adaptive") {
    fields.Reject("type", R"(must be "enabled", "disabled", "auto" or "adaptive")");
  }
  for (const std::string_view name : {"budget_tokens", "token_budget"})  // the second is Cohere's
    fields.Get(name, out.thinking_tokens_max, 0);
}

// OpenRouter's "reasoning", beside the effort.
void GetReasoning(Fields& body, ThinkSwitch& thinking, TemplateFields& out) {
  const Json* reasoning = body.FindObject("reasoning");
  if (reasoning == nullptr) return;
  Fields fields(*reasoning, body.PathOf("reasoning"), body.error());
  fields.Get("max_tokens", out.thinking_tokens_max, 0);
  thinking.Read(fields, "enabled");
  fields.Get("exclude", out.hide_thinking);
}

// As Ollama, vLLM, llama.cpp's server, Qwen's API, Groq and OpenRouter name them.
void GetOtherNames(Fields& body, ThinkSwitch& thinking, TemplateFields& out) {
  const Json* think = body.Find("think");
  if (think != nullptr && think->is_boolean()) {
    thinking.Read(body, "think");
  } else if (const Think level = GetThink(body); out.think == Think::kUnset) {
    out.think = level;
  }
  for (const std::string_view name : {"thinking_budget", "thinking_token_budget", "thinking_budget_tokens"}) {
    if (body.Get(name, out.thinking_tokens_max, -1) && out.thinking_tokens_max == 0)
      thinking.Set(body, name, false);
  }
  bool shown = true;
  if (body.Get("include_reasoning", shown)) out.hide_thinking = !shown;
  std::string format;
  if (!body.Get("reasoning_format", format)) return;
  if (format == "hidden") {
    out.hide_thinking = true;
  } else if (format != "auto" && format != "deepseek" && format != "parsed") {
    body.Reject("reasoning_format", R"(must be "auto", "deepseek", "parsed" or "hidden")",
                ErrorCode::kUnsupported);
  }
}

PromptEnd GetEnd(Fields& body, const std::vector<Message>& messages) {
  std::optional<bool> header;
  std::optional<bool> goes_on;
  body.Get("add_generation_prompt", header);
  body.Get("continue_final_message", goes_on);
  if (goes_on.value_or(false)) {
    if (header.value_or(false)) {
      body.Reject("continue_final_message", "cannot be true together with add_generation_prompt");
    } else if (messages.empty() || messages.back().role != "assistant") {
      body.Reject("continue_final_message", "requires a last message with role assistant");
    }
    return PromptEnd::kLastMessage;
  }
  if (header) return *header ? PromptEnd::kAnswer : PromptEnd::kMessages;
  return goes_on ? PromptEnd::kAnswer : PromptEnd::kAuto;
}

}  // namespace

TemplateFields GetTemplateFields(Fields& body, Think effort, const std::vector<Message>& messages) {
  TemplateFields out{.think = effort, .arguments_json = {}};
  out.think_optional = effort != Think::kUnset;
  ThinkSwitch thinking;
  thinking.Read(body, "enable_thinking");
  GetThinkingObject(body, thinking, out);
  GetArguments(body, thinking, out);
  GetReasoning(body, thinking, out);
  GetOtherNames(body, thinking, out);
  if (thinking.on() == false) {
    out.think = Think::kOff;
  } else if (thinking.on() == true && out.think == Think::kUnset) {
    out.think = Think::kOn;
    out.think_optional = true;
  }
  body.Get("max_thinking_tokens", out.thinking_tokens_max, 0);
  out.end = GetEnd(body, messages);
  return out;
}

void SetTemplateFields(TemplateFields fields, Request& request, ChatPrompt& prompt) {
  request.think = fields.think;
  request.think_optional = fields.think_optional;
  request.thinking_tokens_max = fields.thinking_tokens_max;
  prompt.template_arguments_json = std::move(fields.arguments_json);
  prompt.end = fields.end;
}

}  // namespace quire::api::openai
