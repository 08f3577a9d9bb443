#include "runner/engine/prompt/output_plan.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "runner/constraint/matcher.h"
#include "runner/engine/prompt/answer_grammar.h"
#include "runner/engine/prompt/prompt_builder.h"
#include "runner/output/answer_markup.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::engine {
namespace {

using api::Think;

std::string_view WithoutSpace(std::string_view text) {
  const size_t end = text.find_last_not_of(" \n\t\r");
  return end == std::string_view::npos ? std::string_view() : text.substr(0, end + 1);
}

std::span<const api::Tool> ToolsOf(const api::Request& request) {
  const auto* chat = std::get_if<api::ChatPrompt>(&request.prompt);
  return chat == nullptr ? std::span<const api::Tool>() : chat->tools;
}

bool GoesOnWithText(const api::Request& request) {
  const auto* chat = std::get_if<api::ChatPrompt>(&request.prompt);
  const bool may =
      chat != nullptr && (chat->end == api::PromptEnd::kAuto || chat->end == api::PromptEnd::kLastMessage);
  return may && !chat->messages.empty() && chat->messages.back().role == "assistant" &&
         !chat->messages.back().content.empty();
}

// Tokens of thinking with the levels low and medium.
constexpr int32_t kLowThinkingTokens = 1024;
constexpr int32_t kMediumThinkingTokens = 4096;

std::string EffortOf(Think think, bool harmony) {
  switch (think) {
    case Think::kLow:
      return "low";
    case Think::kMedium:
      return "medium";
    case Think::kHigh:
    case Think::kMax:
      return "high";
    default:
      // Harmony's models cannot be kept from thinking.
      return think == Think::kOff && harmony ? "low" : "";
  }
}

}  // namespace

api::Result<OutputPlan> OutputPlan::Of(const output::Format& format, const api::Request& request) {
  const std::string name = request.model_name.empty() ? "this model" : request.model_name;
  if (!ToolsOf(request).empty() && !format.supports_tools()) {
    return api::Fail(api::ErrorCode::kUnsupported, fmt::format("{} does not support tools", name), "tools");
  }
  const bool asks = request.think != Think::kUnset && request.think != Think::kOff;
  if (asks && !format.can_think && !request.think_optional) {
    return api::Fail(api::ErrorCode::kUnsupported, fmt::format("\"{}\" does not support thinking", name),
                     "think");
  }
  OutputPlan plan(format, request);
  if (format.can_think)
    plan.thinking_ = {request.think != Think::kOff, EffortOf(request.think, format.harmony), {}};
  if (const auto* chat = std::get_if<api::ChatPrompt>(&request.prompt))
    plan.thinking_.arguments_json = chat->template_arguments_json;
  return plan;
}

void OutputPlan::DetectOpenThinking(std::vector<PromptSegment>& prompt) {
  thinking_open_ = format_.thinking != nullptr && !prompt.empty() && prompt.back().from_template &&
                   WithoutSpace(prompt.back().text).ends_with(format_.thinking->begin);
  if (!thinking_open_ || request_->think != Think::kOff) return;
  prompt.back().text += fmt::format("\n{}\n\n", format_.thinking->end);
  thinking_open_ = false;
}

// For models without levels of their own.
int32_t OutputPlan::ThinkingTokensMax() const {
  if (request_->thinking_tokens_max >= 0) return request_->thinking_tokens_max;
  if (format_.has_efforts) return -1;
  return request_->think == Think::kLow      ? kLowThinkingTokens
         : request_->think == Think::kMedium ? kMediumThinkingTokens
                                             : -1;
}

ThinkingBudget OutputPlan::BudgetOf(const tokenizer::Tokenizer& tokenizer) const {
  const output::AnswerMarkup markup = output::MarkupOf(format_);
  const int32_t tokens_max = ThinkingTokensMax();
  if (tokens_max < 0 || markup.thinking_end.empty() || !RendersPrompt()) return {};
  std::string closing = fmt::format("{}{}", format_.harmony ? "" : "\n", markup.thinking_end);
  // Gpt-oss would go on in the same channel; with tools it may also call one.
  if (format_.harmony) closing += markup.after_thinking;
  if (format_.harmony && ToolsOf(*request_).empty()) closing += markup.text_begin;
  auto tokens = tokenizer.Encode(closing, tokenizer::SpecialTokens::kParse);
  if (!tokens) return {};
  return {tokens_max, *std::move(tokens)};
}

bool OutputPlan::RendersPrompt() const {
  return std::holds_alternative<api::ChatPrompt>(request_->prompt) ||
         std::holds_alternative<api::ContinuedPrompt>(request_->prompt);
}

bool OutputPlan::MayThink() const {
  return format_.harmony || (format_.can_think && request_->think != Think::kOff);
}

api::Result<std::shared_ptr<constraint::Constraint>> OutputPlan::ConstraintOf(
    const PromptContext& context) const {
  if (context.constraints == nullptr) return nullptr;
  const ConstraintInputs inputs{.request = *request_,
                                .tools = ToolsOf(*request_),
                                .format = format_,
                                .rendered = RendersPrompt(),
                                .thinking_open = thinking_open_,
                                .may_think = MayThink(),
                                .may_wait = context.formats_may_wait,
                                .resumed = context.resumed};
  return CompileAnswerConstraint(inputs, *context.tokenizer, *context.constraints);
}

std::unique_ptr<output::Parser> OutputPlan::MakeParser() const {
  if (!RendersPrompt()) return nullptr;
  const std::span<const api::Tool> tools = ToolsOf(*request_);
  if (tools.empty() && format_.thinking == nullptr && !format_.harmony) return nullptr;
  const bool forced = request_->tool_choice == api::ToolChoice::kRequired && !tools.empty();
  const bool document = request_->format.has_value() && !forced;
  output::Format format = format_;
  if (document && !MayThink() && !thinking_open_) format.thinking = nullptr;
  // Beside a format a call has to have a marker.
  const bool marked = format_.harmony || !output::MarkupOf(format_).calls_begin.empty();
  std::vector<api::Tool> callable;
  for (const api::Tool& tool : tools) {
    const bool chosen = !forced || request_->forced_tool.empty() || tool.name == request_->forced_tool;
    if (tool.callable && chosen) callable.push_back(tool);
  }
  return output::MakeParser({.format = format,
                             .thinking_open = thinking_open_,
                             .continues = GoesOnWithText(*request_),
                             .expects_calls = !tools.empty() && (!document || marked),
                             .forced = forced,
                             .document = document,
                             .tools = callable});
}

}  // namespace quire::runner::engine
