#include "runner/engine/prepare_output.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <variant>

#include "runner/constraint/output_format.h"
#include "runner/engine/prepare.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::engine {
namespace {

using api::Think;

std::string_view WithoutSpace(std::string_view text) {
  const size_t end = text.find_last_not_of(" \n\t\r");
  return end == std::string_view::npos ? std::string_view() : text.substr(0, end + 1);
}

const std::string& ToolsOf(const api::Request& request) {
  static const std::string kNone;
  const auto* chat = std::get_if<api::ChatPrompt>(&request.prompt);
  return chat == nullptr ? kNone : chat->tools_json;
}

bool GoesOnWithText(const api::Request& request) {
  const auto* chat = std::get_if<api::ChatPrompt>(&request.prompt);
  return chat != nullptr && !chat->messages.empty() && chat->messages.back().role == "assistant" &&
         !chat->messages.back().content.empty();
}

// A marker as a grammar reads it: special tokens in it as themselves.
std::string MarkerBytes(const tokenizer::Tokenizer& tokenizer, std::string_view marker) {
  const auto ids = tokenizer.Encode(marker, tokenizer::SpecialTokens::kParse);
  std::string bytes;
  for (const api::TokenId id : ids ? *ids : std::vector<api::TokenId>()) {
    const auto text = tokenizer.TokenBytes(id);
    const size_t at = tokenizer.IsSpecial(id) ? marker.find(text) : std::string_view::npos;
    if (at == std::string_view::npos || text.empty()) continue;
    bytes += marker.substr(0, at);
    bytes += constraint::SpecialTokenBytes(id);
    marker.remove_prefix(at + text.size());
  }
  return bytes += marker;
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

api::Result<AnswerFrame> AnswerFrame::Of(const output::Format& format, const api::Request& request) {
  const std::string name = request.model_name.empty() ? "this model" : request.model_name;
  if (!ToolsOf(request).empty() && !format.supports_tools()) {
    return api::Fail(api::ErrorCode::kUnsupported, fmt::format("{} does not support tools", name), "tools");
  }
  if (request.tool_choice == api::ToolChoice::kRequired) {
    return api::Fail(api::ErrorCode::kUnsupported,
                     "tool_choice: forcing a call is not supported in this version", "tool_choice");
  }
  const bool asks = request.think != Think::kUnset && request.think != Think::kOff;
  if (asks && !format.can_think && !request.think_optional) {
    return api::Fail(api::ErrorCode::kUnsupported, fmt::format("\"{}\" does not support thinking", name),
                     "think");
  }
  AnswerFrame frame(format, request);
  if (format.can_think)
    frame.thinking_ = {request.think != Think::kOff, EffortOf(request.think, format.harmony)};
  return frame;
}

void AnswerFrame::CloseOrNote(std::vector<PromptSegment>& prompt) {
  thinking_open_ = format_.thinking != nullptr && !prompt.empty() && prompt.back().from_template &&
                   WithoutSpace(prompt.back().text).ends_with(format_.thinking->begin);
  if (!thinking_open_ || request_->think != Think::kOff) return;
  prompt.back().text += fmt::format("\n{}\n\n", format_.thinking->end);
  thinking_open_ = false;
}

bool AnswerFrame::RendersPrompt() const {
  return std::holds_alternative<api::ChatPrompt>(request_->prompt) ||
         std::holds_alternative<api::ContinuedPrompt>(request_->prompt);
}

api::Result<std::shared_ptr<constraint::Constraint>> AnswerFrame::ConstraintOf(
    const PromptSource& source) const {
  const api::OutputFormat& format = *request_->format;
  if (source.constraints == nullptr || (format_.harmony && RendersPrompt())) {
    return api::Fail(api::ErrorCode::kUnsupported,
                     fmt::format("{}: this model does not support structured output", format.field),
                     format.field);
  }
  const bool may_think = format_.can_think && RendersPrompt() && request_->think != Think::kOff;
  if (format_.thinking == nullptr || !(thinking_open_ || may_think)) return source.constraints->Get(format);
  const auto key = fmt::format("{} {} {} {}", format_.thinking->begin, thinking_open_,
                               static_cast<int>(format.kind), format.text);
  return source.constraints->Get(key, [&](constraint::RuleBook& rules) -> api::Result<constraint::PartRef> {
    using namespace constraint;
    auto answer = AnswerOf(format, rules);
    if (!answer) return answer;
    const PartRef thought = Sequence({TextUntil(MarkerBytes(*source.tokenizer, format_.thinking->end)),
                                      Repeat(Literal("\n"), 0, 2), *answer});
    if (thinking_open_) return thought;
    const PartRef begin = Literal(MarkerBytes(*source.tokenizer, format_.thinking->begin));
    return Choice({*answer, Sequence({begin, thought})});
  });
}

std::unique_ptr<output::Parser> AnswerFrame::MakeParser() const {
  if (!RendersPrompt()) return nullptr;
  const std::string& tools = ToolsOf(*request_);
  if (tools.empty() && format_.thinking == nullptr && !format_.harmony) return nullptr;
  return output::MakeParser({.format = format_,
                             .thinking_open = thinking_open_,
                             .continues = GoesOnWithText(*request_),
                             .tools = !tools.empty() && !request_->format,
                             .tools_json = tools});
}

}  // namespace quire::runner::engine
