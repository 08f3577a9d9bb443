#include "runner/engine/output_plan.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "runner/constraint/matcher.h"
#include "runner/engine/answer_grammar.h"
#include "runner/engine/prompt_builder.h"
#include "runner/output/answer_markup.h"

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
  return chat != nullptr && !chat->messages.empty() && chat->messages.back().role == "assistant" &&
         !chat->messages.back().content.empty();
}

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
    plan.thinking_ = {request.think != Think::kOff, EffortOf(request.think, format.harmony)};
  return plan;
}

void OutputPlan::DetectOpenThinking(std::vector<PromptSegment>& prompt) {
  thinking_open_ = format_.thinking != nullptr && !prompt.empty() && prompt.back().from_template &&
                   WithoutSpace(prompt.back().text).ends_with(format_.thinking->begin);
  if (!thinking_open_ || request_->think != Think::kOff) return;
  prompt.back().text += fmt::format("\n{}\n\n", format_.thinking->end);
  thinking_open_ = false;
}

bool OutputPlan::RendersPrompt() const {
  return std::holds_alternative<api::ChatPrompt>(request_->prompt) ||
         std::holds_alternative<api::ContinuedPrompt>(request_->prompt);
}

api::Result<std::shared_ptr<constraint::Constraint>> OutputPlan::ConstraintOf(
    const PromptContext& context) const {
  if (context.constraints == nullptr) return nullptr;
  const bool may_think = format_.harmony || (format_.can_think && request_->think != Think::kOff);
  const ConstraintInputs inputs{.request = *request_,
                                .tools = ToolsOf(*request_),
                                .format = format_,
                                .rendered = RendersPrompt(),
                                .thinking_open = thinking_open_,
                                .may_think = may_think};
  return CompileAnswerConstraint(inputs, *context.tokenizer, *context.constraints);
}

std::unique_ptr<output::Parser> OutputPlan::MakeParser() const {
  if (!RendersPrompt()) return nullptr;
  const std::span<const api::Tool> tools = ToolsOf(*request_);
  // A document must not be read as a call that stands without a marker.
  const bool forced = request_->tool_choice == api::ToolChoice::kRequired;
  const bool unmarked = !forced && !format_.harmony && output::MarkupOf(format_).calls_begin.empty();
  if (tools.empty() && format_.thinking == nullptr && !format_.harmony) return nullptr;
  return output::MakeParser({.format = format_,
                             .thinking_open = thinking_open_,
                             .continues = GoesOnWithText(*request_),
                             .expects_calls = !tools.empty() && (!request_->format || !unmarked),
                             .tools = tools});
}

}  // namespace quire::runner::engine
