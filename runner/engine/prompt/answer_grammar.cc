#include "runner/engine/prompt/answer_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/ascii.h"
#include "api/json/read.h"
#include "runner/constraint/automaton.h"
#include "runner/constraint/json_grammar.h"
#include "runner/constraint/output_format.h"
#include "runner/constraint/schema.h"
#include "runner/engine/prompt/markup_grammar.h"
#include "runner/output/answer_markup.h"
#include "runner/tokenizer/tokenizer.h"
#include "runner/work/log_line.h"

namespace quire::runner::engine {
namespace {

using api::Json;
using constraint::ExprRef;
using constraint::GrammarBuilder;

constexpr uint32_t kCallsMax = 16;  // of one constrained answer

struct CallableTool {
  std::string name;
  Json parameters = nullptr;  // null: none were given
  bool strict = false;
  std::string place = {};  // of its schema, for messages
};

// The schema of an object, whatever it says of the type.
Json AsObject(Json schema) {
  const auto type = schema.find("type");
  if (type == schema.end()) {
    schema["type"] = "object";
  } else if (type->is_array()) {
    *type = "object";
  }
  return schema;
}

bool IsPythonName(std::string_view name) {
  return std::ranges::all_of(name,
                             [](char c) { return api::IsAsciiAlnum(c) || c == '_' || c == '.' || c == '-'; });
}

// Once for each format that is compiled. The names are keywords, never a client's.
void LogLoosened(const GrammarBuilder& builder) {
  if (builder.loosened().empty()) return;
  LogLine(fmt::format("a format is not enforced in all its rules: {}", fmt::join(builder.loosened(), ", ")));
}

class AnswerGrammar {
 public:
  AnswerGrammar(const ConstraintInputs& inputs, const tokenizer::Tokenizer& tokenizer)
      : inputs_(inputs), tokenizer_(tokenizer), markup_(output::MarkupOf(inputs.format)) {
    if (!inputs.rendered) return;
    for (size_t i = 0; i < inputs.tools.size(); ++i) {
      const api::Tool& tool = inputs.tools[i];
      if (!tool.callable) continue;
      if (Forced() && !inputs.request.forced_tool.empty() && tool.name != inputs.request.forced_tool)
        continue;
      any_strict_ = any_strict_ || tool.strict;
      auto parameters = api::ReadJson(tool.parameters_json.empty() ? "null" : tool.parameters_json);
      tools_.push_back(
          {tool.name, parameters ? *std::move(parameters) : Json(), tool.strict, tool.parameters_field});
    }
  }

  bool Needed() const { return inputs_.request.format || Forced() || MayBeginCalls(); }
  // Nothing but calls that the model may begin is constrained, and no tool is strict: without it the answer
  // is as good.
  bool IsOptional() const { return !inputs_.request.format && !Forced() && !any_strict_; }
  // Arguments may stay unconstrained where a schema cannot be enforced.
  bool MayRelax() const { return !tools_.empty() && !any_strict_; }

  std::string Key(bool constrain_all) const {
    const api::Request& request = inputs_.request;
    // How long compiling takes would tell others which formats a tenant uses.
    std::string key = request.client.IsolationKey();
    key = fmt::format("{} {} {}{}{}{}{}{} {} {}", key.size(), key, inputs_.rendered, inputs_.thinking_open,
                      inputs_.may_think, Forced(), request.single_tool_call, constrain_all,
                      request.forced_tool.size(), request.forced_tool);
    if (request.format) {
      const auto& format = *request.format;
      key += fmt::format(" {} {} {} {}", static_cast<int>(format.kind),
                         request.params.structured_output_whitespace, format.text.size(), format.text);
    }
    for (const api::Tool& tool : inputs_.tools) {
      key += fmt::format("{}{} {} {} {}", tool.callable ? '+' : '-', tool.strict, tool.name.size(), tool.name,
                         tool.parameters_json);
    }
    return key;
  }

  // `constrain_all`: arguments match the schemas of tools that are not strict, too.
  api::Result<ExprRef> Build(GrammarBuilder& builder, bool constrain_all) const {
    if (!inputs_.request.format && !Forced()) return FreeAnswer(builder, constrain_all);
    auto body = Body(builder, constrain_all);
    if (!body || markup_.thinking_begin.empty() || !inputs_.rendered) return body;
    const ExprRef gap = AfterThinking();
    const uint32_t rule = builder.Declare();
    builder.Define(rule, *body);
    const ExprRef answer = constraint::Call(rule);
    const ExprRef thought = constraint::Sequence(
        {constraint::TextUntil(MarkupBytes(tokenizer_, markup_.thinking_end)), gap, answer});
    if (inputs_.thinking_open) return thought;
    if (!inputs_.may_think) return *body;
    return constraint::Choice(
        {answer, constraint::Sequence({MarkupText(tokenizer_, markup_.thinking_begin), thought})});
  }

 private:
  // Between thinking and an answer.
  ExprRef AfterThinking() const {
    if (!markup_.after_thinking.empty()) return MarkupText(tokenizer_, markup_.after_thinking);
    ExprRef lines = constraint::Repeat(constraint::Literal("\n"), 0, 2);
    if (markup_.answer_begin.empty()) return lines;
    const ExprRef tag = constraint::Sequence({MarkupText(tokenizer_, markup_.answer_begin), lines});
    return constraint::Sequence({lines, constraint::Optional(tag)});
  }
  bool Forced() const {
    return inputs_.request.tool_choice == api::ToolChoice::kRequired && !inputs_.tools.empty();
  }
  bool MarkedCalls() const { return markup_.calls != nullptr && !markup_.calls_begin.empty(); }
  // The answer is the model's own, and its calls are told apart from text by a marker.
  bool MayBeginCalls() const {
    return inputs_.rendered && !inputs_.tools.empty() && markup_.calls != nullptr &&
           !markup_.call_marker.empty();
  }

  // Text, thinking and special tokens of any kind; from the marker of a call on, calls of the tools.
  api::Result<ExprRef> FreeAnswer(GrammarBuilder& builder, bool constrain_all) const {
    if (inputs_.format.harmony) return FreeHarmonyAnswer(builder, constrain_all);
    const bool is_token = MarkupBytes(tokenizer_, markup_.call_marker) != markup_.call_marker;
    auto text = is_token ? constraint::AnythingWithout(MarkupBytes(tokenizer_, markup_.call_marker))
                         : TextWithoutLine(markup_.call_marker);
    if (!text) return text;
    ExprRef answer = *text;
    if (!tools_.empty()) {
      auto calls = Calls(builder, constrain_all);
      if (!calls) return calls;
      std::string_view begin = markup_.call_marker;
      if (!markup_.calls_begin.empty()) begin = {};  // the calls have it
      const uint32_t rule = builder.Declare();
      builder.Define(rule, constraint::Sequence({MarkupText(tokenizer_, begin), *std::move(calls)}));
      const ExprRef marked = constraint::Call(rule);
      const ExprRef line = is_token ? marked : constraint::Sequence({constraint::Literal("\n"), marked});
      answer = constraint::Sequence({*std::move(text), constraint::Optional(line)});
      if (!is_token) answer = constraint::Choice({answer, marked});
    }
    const bool may_think = inputs_.may_think || inputs_.thinking_open;
    if (markup_.thinking_begin.empty() || !may_think) return answer;
    const uint32_t rule = builder.Declare();
    builder.Define(rule, answer);
    answer = constraint::Call(rule);
    const std::string end = MarkupBytes(tokenizer_, markup_.thinking_end);
    const ExprRef thought = constraint::Choice(
        {constraint::AnythingWithout(end), constraint::Sequence({constraint::AnythingUntil(end), answer})});
    if (inputs_.thinking_open) return thought;
    return constraint::Choice(
        {answer, constraint::Sequence({MarkupText(tokenizer_, markup_.thinking_begin), thought})});
  }

  // Anything in which no line begins with a marker that is spelled with ordinary tokens.
  static api::Result<ExprRef> TextWithoutLine(std::string_view marker) {
    const ExprRef any = constraint::Repeat(constraint::Byte(0, 0xFF), 0, std::nullopt);
    const auto lines = constraint::BuildDfa(*constraint::AnythingWithout("\n" + std::string(marker)));
    const auto first =
        constraint::BuildDfa(*constraint::Sequence({constraint::Literal(std::string(marker)), any}));
    for (const auto* dfa : {&lines, &first}) {
      if (!*dfa) return std::unexpected(dfa->error());
    }
    auto text = constraint::Subtract(*lines, *first);
    if (!text) return std::unexpected(text.error());
    return constraint::Automaton(std::make_shared<const constraint::Dfa>(*std::move(text)));
  }

  // Gpt-oss has a header before every part, so that no thinking holds a marker. The recipient of a call
  // stands behind the channel, or behind the role; the role of the first message is part of the prompt.
  api::Result<ExprRef> FreeHarmonyAnswer(GrammarBuilder& builder, bool constrain_all) const {
    auto text = HarmonyText();
    if (!text || tools_.empty()) return text;
    std::vector<ExprRef> by_channel;
    std::vector<ExprRef> by_role;
    for (const CallableTool& tool : tools_) {
      auto arguments = Arguments(tool, builder, constrain_all);
      if (!arguments) return arguments;
      const uint32_t rule = builder.Declare();
      builder.Define(rule, *std::move(arguments));
      const ExprRef name = constraint::Literal(tool.name);
      const auto with = [&](std::string_view before, const ExprRef& between) {
        return constraint::Sequence({MarkupText(tokenizer_, before), name, between, constraint::Call(rule)});
      };
      by_channel.push_back(with(markup_.calls->head, MarkupText(tokenizer_, markup_.calls->middle)));
      by_role.push_back(with(output::kHarmonyRecipient, HarmonyChannel()));
    }
    const ExprRef of_first_message = constraint::Choice(std::move(by_role));
    const ExprRef of_next_message =
        constraint::Sequence({MarkupText(tokenizer_, markup_.after_thinking), of_first_message});
    by_channel.push_back(of_next_message);
    const ExprRef call = constraint::Optional(constraint::Choice(std::move(by_channel)));
    return constraint::Choice({constraint::Sequence({*std::move(text), call}), of_first_message});
  }

  // Between the name of a call and its arguments, where the name stands behind the role.
  ExprRef HarmonyChannel() const {
    return constraint::Sequence(
        {MarkupText(tokenizer_, "<|channel|>commentary"),
         constraint::Optional(constraint::Choice(
             {constraint::Literal(" json"), MarkupText(tokenizer_, " <|constrain|>json")})),
         MarkupText(tokenizer_, "<|message|>")});
  }

  // Anything in which no call begins.
  api::Result<ExprRef> HarmonyText() const {
    const std::string first = MarkupBytes(tokenizer_, output::kHarmonyTo);
    const std::string next =
        MarkupBytes(tokenizer_, std::string(markup_.after_thinking) + std::string(output::kHarmonyTo));
    const ExprRef any = constraint::Repeat(constraint::Byte(0, 0xFF), 0, std::nullopt);
    const auto by_channel =
        constraint::BuildDfa(*constraint::AnythingWithout(MarkupBytes(tokenizer_, markup_.call_marker)));
    const auto by_role = constraint::BuildDfa(*constraint::AnythingWithout(next));
    const auto at_once = constraint::BuildDfa(*constraint::Sequence({constraint::Literal(first), any}));
    for (const auto* dfa : {&by_channel, &by_role, &at_once}) {
      if (!*dfa) return std::unexpected(dfa->error());
    }
    auto text = constraint::Intersect(*by_channel, *by_role);
    if (text) text = constraint::Subtract(*text, *at_once);
    if (!text) return std::unexpected(text.error());
    return constraint::Automaton(std::make_shared<const constraint::Dfa>(*std::move(text)));
  }

  api::Result<ExprRef> Body(GrammarBuilder& builder, bool constrain_all) const {
    if (Forced()) return Calls(builder, constrain_all);
    const bool may_call = !tools_.empty() && (MarkedCalls() || !markup_.text_begin.empty());
    const bool spaces = inputs_.request.params.structured_output_whitespace;
    auto answer = constraint::AnswerOf(*inputs_.request.format, {.spaces = spaces}, builder);
    if (!answer) return answer;
    if (inputs_.rendered && !markup_.text_begin.empty()) {
      answer = constraint::Sequence({MarkupText(tokenizer_, markup_.text_begin), *answer});
    }
    if (!may_call) return answer;
    auto calls = Calls(builder, constrain_all);
    if (!calls) return calls;
    return constraint::Choice({*std::move(answer), *std::move(calls)});
  }

  api::Result<ExprRef> Calls(GrammarBuilder& builder, bool constrain_all) const {
    const output::ToolCallTemplate& call_template = *markup_.calls;
    std::vector<ExprRef> one_of;
    std::vector<ExprRef> unmarked;
    if (call_template.python && constrain_all) one_of = PythonCalls(builder);
    const bool python = !one_of.empty();
    for (const CallableTool& tool : python ? std::vector<CallableTool>() : tools_) {
      if (call_template.tagged != nullptr && (constrain_all || tool.strict)) {
        // Any other call is JSON, which the model's parser reads too.
        if (auto call = InTags(tool, *call_template.tagged, builder)) {
          one_of.push_back(*std::move(call));
          continue;
        }
      }
      auto arguments = Arguments(tool, builder, constrain_all);
      if (!arguments) return arguments;
      if (MayBeUnmarked()) {
        const uint32_t rule = builder.Declare();
        builder.Define(rule, *std::move(arguments));
        arguments = constraint::Call(rule);
        unmarked.push_back(UnmarkedCall(tool.name, *arguments));
      }
      std::string name = tool.name;
      if (call_template.json_name) {
        name = api::DumpJson(tool.name);
        name = name.substr(1, name.size() - 2);
      }
      one_of.push_back(
          constraint::Sequence({MarkupText(tokenizer_, call_template.head), constraint::Literal(name),
                                MarkupText(tokenizer_, call_template.middle), *std::move(arguments),
                                MarkupText(tokenizer_, call_template.tail)}));
    }
    const uint32_t rule = builder.Declare();
    builder.Define(rule, constraint::Choice(std::move(one_of)));
    std::vector<ExprRef> calls = {MarkupText(tokenizer_, call_template.open), constraint::Call(rule)};
    const bool single = inputs_.request.single_tool_call || call_template.between.empty();
    if (!single) {
      const ExprRef next =
          constraint::Sequence({MarkupText(tokenizer_, call_template.between), constraint::Call(rule)});
      calls.push_back(constraint::Repeat(next, 0, kCallsMax - 1));
    }
    calls.push_back(MarkupText(tokenizer_, call_template.close));
    ExprRef marked = constraint::Sequence(std::move(calls));
    if (unmarked.empty()) return marked;
    return constraint::Choice({std::move(marked), UnmarkedCalls(std::move(unmarked), single, builder)});
  }

  // A model that leaves out its marker, as some always do, would write other arguments behind one that it has
  // to write.
  bool MayBeUnmarked() const { return Forced() && !inputs_.format.harmony; }

  // As output::UnmarkedCalls reads it.
  static ExprRef UnmarkedCall(const std::string& name, const ExprRef& arguments) {
    const constraint::JsonStyle style;
    const ExprRef space = constraint::Space(style);
    const ExprRef key =
        constraint::Choice({constraint::JsonStringOf("arguments"), constraint::JsonStringOf("parameters")});
    return constraint::Sequence(
        {constraint::Literal("{"), space,
         constraint::Member(constraint::JsonStringOf("name"), constraint::JsonStringOf(name), style),
         constraint::MemberSeparator(style), constraint::Member(key, arguments, style), space,
         constraint::Literal("}")});
  }

  static ExprRef UnmarkedCalls(std::vector<ExprRef> one_of, bool single, GrammarBuilder& builder) {
    const constraint::JsonStyle style;
    const ExprRef space = constraint::Space(style);
    const uint32_t rule = builder.Declare();
    builder.Define(rule, constraint::Choice(std::move(one_of)));
    const auto several = [&](const ExprRef& between) {
      const ExprRef next = constraint::Sequence({between, constraint::Call(rule)});
      return constraint::Sequence(
          {constraint::Call(rule), constraint::Repeat(next, 0, single ? 0 : kCallsMax - 1)});
    };
    const ExprRef separator =
        constraint::Optional(constraint::Choice({constraint::Literal(","), constraint::Literal(";")}));
    const ExprRef list =
        constraint::Sequence({constraint::Literal("["), space, several(constraint::MemberSeparator(style)),
                              space, constraint::Literal("]")});
    const ExprRef calls = constraint::Choice({several(constraint::Sequence({separator, space})), list});
    const ExprRef fence = constraint::Literal("```");
    const ExprRef fenced = constraint::Sequence({fence, constraint::Optional(constraint::Literal("json")),
                                                 constraint::Literal("\n"), calls, space, fence});
    return constraint::Document(constraint::Choice({calls, fenced}), style);
  }

  api::Result<ExprRef> InTags(const CallableTool& tool, const output::TaggedArguments& tags,
                              GrammarBuilder& builder) const {
    const bool schema = tool.parameters.is_object() && !tool.parameters.empty();
    if (!schema && !tool.parameters.is_null()) {
      return api::Fail(api::ErrorCode::kUnsupported, "parameters that are no schema");
    }
    return TaggedCall(tags, tool.name, schema ? AsObject(tool.parameters) : Json(), EnforcementOf(tool),
                      tokenizer_, builder);
  }

  static constraint::Enforcement EnforcementOf(const CallableTool& tool) {
    return tool.strict ? constraint::Enforcement::kStrict : constraint::Enforcement::kLoose;
  }

  // Empty where some tool cannot be called like that: an answer's calls are all of one kind.
  std::vector<ExprRef> PythonCalls(GrammarBuilder& builder) const {
    std::vector<ExprRef> calls;
    for (const CallableTool& tool : tools_) {
      const bool schema = tool.parameters.is_object() && !tool.parameters.empty();
      auto arguments =
          schema ? constraint::PythonArguments(AsObject(tool.parameters), builder, EnforcementOf(tool))
          : tool.parameters.is_null() ? constraint::Nothing()
                                      : api::Result<ExprRef>(constraint::Never());
      if (!arguments || constraint::IsNever(*arguments) || !IsPythonName(tool.name)) return {};
      calls.push_back(constraint::Sequence(
          {constraint::Literal(tool.name + "("), *std::move(arguments), constraint::Literal(")")}));
    }
    return calls;
  }

  api::Result<ExprRef> Arguments(const CallableTool& tool, GrammarBuilder& builder,
                                 bool constrain_all) const {
    const bool schema = tool.parameters.is_object() && !tool.parameters.empty();
    if (!schema && tool.parameters.is_null()) return constraint::Literal("{}");
    if (!schema || (!constrain_all && !tool.strict)) return constraint::AnyJson(builder).object;
    auto arguments = constraint::JsonSchema(AsObject(tool.parameters), builder, {}, EnforcementOf(tool));
    if (!arguments && IsOptional()) return constraint::AnyJson(builder).object;
    if (arguments || !tool.strict) return arguments;
    api::Error error = std::move(arguments.error());
    error.message = fmt::format("{}: {}", tool.place, error.message);
    error.field = tool.place;
    return std::unexpected(std::move(error));
  }

  const ConstraintInputs& inputs_;
  const tokenizer::Tokenizer& tokenizer_;
  const output::AnswerMarkup markup_;
  std::vector<CallableTool> tools_;  // that the answer may call
  bool any_strict_ = false;
};

}  // namespace

api::Result<std::shared_ptr<constraint::Constraint>> CompileAnswerConstraint(
    const ConstraintInputs& inputs, const tokenizer::Tokenizer& tokenizer,
    constraint::ConstraintCache& constraints) {
  const AnswerGrammar grammar(inputs, tokenizer);
  if (!grammar.Needed()) return nullptr;
  const auto get = [&](bool constrain_all) {
    return constraints.Get(
        grammar.Key(constrain_all),
        [&](GrammarBuilder& builder) {
          auto whole = grammar.Build(builder, constrain_all);
          LogLoosened(builder);
          return whole;
        },
        {.party = inputs.request.client.party, .may_wait = inputs.may_wait, .resumed = inputs.resumed});
  };
  auto constraint = get(true);
  if (!constraint && grammar.MayRelax()) constraint = get(false);
  if (!constraint && grammar.IsOptional()) return nullptr;
  if (constraint || !constraint.error().field.empty()) return constraint;
  // For the grammar as a whole.
  api::Error error = std::move(constraint.error());
  error.field = inputs.request.format ? inputs.request.format->field : "tools";
  error.message = fmt::format("{}: {}", error.field, error.message);
  return std::unexpected(std::move(error));
}

}  // namespace quire::runner::engine
