#include "runner/engine/answer_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/ascii.h"
#include "api/json/read.h"
#include "runner/constraint/json_parts.h"
#include "runner/constraint/output_format.h"
#include "runner/constraint/schema.h"
#include "runner/output/spelling.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::engine {
namespace {

using api::Json;
using constraint::PartRef;
using constraint::RuleBook;

constexpr uint32_t kCallsMax = 16;  // of one answer, where they are held to a grammar

struct Tool {
  std::string name;
  Json parameters = nullptr;  // null: it says nothing of them
  bool strict = false;
  std::string place = {};  // of its schema, for messages
};

const Json* Member(const Json& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::vector<Tool> ReadTools(const std::string& tools_json) {
  std::vector<Tool> tools;
  const auto list = tools_json.empty() ? api::Result<Json>(Json::array()) : api::ReadJson(tools_json);
  if (!list || !list->is_array()) return tools;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    const Json* function = Member(entry, "function");
    const Json* name = function == nullptr ? nullptr : Member(*function, "name");
    if (name == nullptr || !name->is_string()) continue;
    Tool tool{.name = name->get<std::string>(), .place = fmt::format("tools[{}].function.parameters", i)};
    if (const Json* parameters = Member(*function, "parameters")) tool.parameters = *parameters;
    const Json* strict = Member(*function, "strict");
    tool.strict = strict != nullptr && strict->is_boolean() && strict->get<bool>();
    tools.push_back(std::move(tool));
  }
  return tools;
}

// What is written of an object's schema: no properties but those it names, unless it speaks of others.
Json ClosedObject(Json schema) {
  const Json* properties = Member(schema, "properties");
  const bool names = properties != nullptr && properties->is_object();
  const bool combines = schema.contains("allOf") || schema.contains("anyOf") || schema.contains("oneOf") ||
                        schema.contains("$ref") || schema.contains("patternProperties");
  if (names && !combines && !schema.contains("additionalProperties")) schema["additionalProperties"] = false;
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

// As a grammar reads it: special tokens in it as themselves.
std::string TextBytes(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.Encode(text, tokenizer::SpecialTokens::kParse);
  std::string bytes;
  for (const api::TokenId id : ids ? *ids : std::vector<api::TokenId>()) {
    const auto token = tokenizer.TokenBytes(id);
    const size_t at = tokenizer.IsSpecial(id) && !token.empty() ? text.find(token) : std::string_view::npos;
    if (at == std::string_view::npos) continue;
    bytes += text.substr(0, at);
    bytes += constraint::SpecialTokenBytes(id);
    text.remove_prefix(at + token.size());
  }
  return bytes += text;
}

PartRef Text(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  return constraint::Literal(TextBytes(tokenizer, text));
}

class AnswerGrammar {
 public:
  AnswerGrammar(const AnswerTerms& terms, const tokenizer::Tokenizer& tokenizer)
      : terms_(terms), tokenizer_(tokenizer), spelling_(output::SpellingOf(terms.format)) {
    if (!terms.rendered) return;
    for (Tool& tool : ReadTools(terms.tools_json)) {
      if (Forced() && !terms.request.forced_tool.empty() && tool.name != terms.request.forced_tool) continue;
      any_strict_ = any_strict_ || tool.strict;
      tools_.push_back(std::move(tool));
    }
  }

  bool Needed() const { return terms_.request.format || Forced() || (any_strict_ && MarkedCalls()); }
  // Arguments may be left free where a schema is more than can be held to.
  bool MayLoosen() const { return !tools_.empty() && !any_strict_; }

  std::string Key(bool held) const {
    const api::Request& request = terms_.request;
    std::string key =
        fmt::format("{}{}{}{}{}{} {} {}", terms_.rendered, terms_.thinking_open, terms_.may_think, Forced(),
                    request.single_tool_call, held, request.forced_tool.size(), request.forced_tool);
    if (request.format) {
      const auto& format = *request.format;
      key += fmt::format(" {} {} {}", static_cast<int>(format.kind), format.text.size(), format.text);
    }
    return key + terms_.tools_json;
  }

  // `held`: arguments hold the schemas of tools that are not strict, too.
  api::Result<PartRef> Build(RuleBook& rules, bool held) const {
    auto body = Body(rules, held);
    if (!body || spelling_.thinking_begin.empty() || !terms_.rendered) return body;
    const PartRef gap = spelling_.after_thinking.empty() ? constraint::Repeat(constraint::Literal("\n"), 0, 2)
                                                         : Text(tokenizer_, spelling_.after_thinking);
    const uint32_t rule = rules.Declare();
    rules.Define(rule, *body);
    const PartRef answer = constraint::Call(rule);
    const PartRef thought = constraint::Sequence(
        {constraint::TextUntil(TextBytes(tokenizer_, spelling_.thinking_end)), gap, answer});
    if (terms_.thinking_open) return thought;
    if (!terms_.may_think) return *body;
    return constraint::Choice(
        {answer, constraint::Sequence({Text(tokenizer_, spelling_.thinking_begin), thought})});
  }

 private:
  bool Forced() const {
    return terms_.request.tool_choice == api::ToolChoice::kRequired && !terms_.tools_json.empty();
  }
  bool MarkedCalls() const { return spelling_.calls != nullptr && !spelling_.calls_begin.empty(); }

  api::Result<PartRef> Body(RuleBook& rules, bool held) const {
    if (Forced()) return Calls(rules, held);
    const bool may_call = !tools_.empty() && (MarkedCalls() || !spelling_.text_begin.empty());
    if (!terms_.request.format) {
      auto calls = Calls(rules, held);
      if (!calls) return calls;
      const PartRef text = constraint::TextWithout(TextBytes(tokenizer_, spelling_.calls_begin));
      return constraint::Sequence({text, constraint::Optional(*std::move(calls))});
    }
    auto answer = constraint::AnswerOf(*terms_.request.format, rules);
    if (!answer) return answer;
    if (terms_.rendered && !spelling_.text_begin.empty()) {
      answer = constraint::Sequence({Text(tokenizer_, spelling_.text_begin), *answer});
    }
    if (!may_call) return answer;
    auto calls = Calls(rules, held);
    if (!calls) return calls;
    return constraint::Choice({*std::move(answer), *std::move(calls)});
  }

  api::Result<PartRef> Calls(RuleBook& rules, bool held) const {
    const output::CallSpelling& spelling = *spelling_.calls;
    std::vector<PartRef> one_of;
    if (spelling.python && held) one_of = PythonCalls(rules);
    const bool python = !one_of.empty();
    for (const Tool& tool : python ? std::vector<Tool>() : tools_) {
      auto arguments = Arguments(tool, rules, held);
      if (!arguments) return arguments;
      std::string name = tool.name;
      if (spelling.json_name) {
        name = api::DumpJson(tool.name);
        name = name.substr(1, name.size() - 2);
      }
      one_of.push_back(constraint::Sequence({Text(tokenizer_, spelling.head), constraint::Literal(name),
                                             Text(tokenizer_, spelling.middle), *std::move(arguments),
                                             Text(tokenizer_, spelling.tail)}));
    }
    const uint32_t rule = rules.Declare();
    rules.Define(rule, constraint::Choice(std::move(one_of)));
    std::vector<PartRef> calls = {Text(tokenizer_, spelling.open), constraint::Call(rule)};
    const bool single = terms_.request.single_tool_call || spelling.between.empty();
    if (!single) {
      const PartRef next = constraint::Sequence({Text(tokenizer_, spelling.between), constraint::Call(rule)});
      calls.push_back(constraint::Repeat(next, 0, kCallsMax - 1));
    }
    calls.push_back(Text(tokenizer_, spelling.close));
    return constraint::Sequence(std::move(calls));
  }

  // Empty where some tool cannot be called like that: an answer's calls are all of one kind.
  std::vector<PartRef> PythonCalls(RuleBook& rules) const {
    std::vector<PartRef> calls;
    for (const Tool& tool : tools_) {
      const bool schema = tool.parameters.is_object() && !tool.parameters.empty();
      auto arguments = schema ? constraint::PythonArguments(ClosedObject(tool.parameters), rules)
                       : tool.parameters.is_null() ? constraint::Nothing()
                                                   : api::Result<PartRef>(constraint::Never());
      if (!arguments || constraint::IsNever(*arguments) || !IsPythonName(tool.name)) return {};
      calls.push_back(constraint::Sequence(
          {constraint::Literal(tool.name + "("), *std::move(arguments), constraint::Literal(")")}));
    }
    return calls;
  }

  api::Result<PartRef> Arguments(const Tool& tool, RuleBook& rules, bool held) const {
    const bool schema = tool.parameters.is_object() && !tool.parameters.empty();
    if (!schema && tool.parameters.is_null()) return constraint::Literal("{}");
    if (!schema || (!held && !tool.strict)) return constraint::AnyJson(rules).object;
    auto arguments = constraint::JsonSchema(ClosedObject(tool.parameters), rules);
    if (arguments || !tool.strict) return arguments;
    api::Error error = std::move(arguments.error());
    error.message = fmt::format("{}: {}", tool.place, error.message);
    error.field = tool.place;
    return std::unexpected(std::move(error));
  }

  const AnswerTerms& terms_;
  const tokenizer::Tokenizer& tokenizer_;
  const output::AnswerSpelling spelling_;
  std::vector<Tool> tools_;  // that the answer may call
  bool any_strict_ = false;
};

}  // namespace

api::Result<std::shared_ptr<constraint::Constraint>> HoldAnswer(const AnswerTerms& terms,
                                                                const tokenizer::Tokenizer& tokenizer,
                                                                constraint::ConstraintCache& constraints) {
  const AnswerGrammar grammar(terms, tokenizer);
  if (!grammar.Needed()) return nullptr;
  const auto get = [&](bool held) {
    return constraints.Get(grammar.Key(held), [&](RuleBook& rules) { return grammar.Build(rules, held); });
  };
  auto constraint = get(true);
  if (!constraint && grammar.MayLoosen()) constraint = get(false);
  if (constraint || !constraint.error().field.empty()) return constraint;
  // Of the grammar as a whole.
  api::Error error = std::move(constraint.error());
  error.field = terms.request.format ? terms.request.format->field : "tools";
  error.message = fmt::format("{}: {}", error.field, error.message);
  return std::unexpected(std::move(error));
}

}  // namespace quire::runner::engine
