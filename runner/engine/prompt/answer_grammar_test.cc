// Texts that a grammar allows are parsed back: every family, with the bundled model's vocabulary.
#include "runner/engine/prompt/answer_grammar.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "api/json/testing/tools_of.h"
#include "runner/constraint/output_format.h"
#include "runner/engine/testing/engine_harness.h"
#include "runner/output/answer_markup.h"

namespace quire::runner::engine {
namespace {

using nlohmann::json;

constexpr const char* kTools =
    R"([{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{)"
    R"("city":{"enum":["Paris","\"Rome\" / 東京"]},"days":{"type":"integer","minimum":1,"maximum":7}},)"
    R"("required":["city","days"]}}},{"type":"function","function":{"name":"set_flag","strict":true,)"
    R"("parameters":{"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"]}}},)"
    R"({"type":"function","function":{"name":"now"}}])";

std::vector<api::Tool> SomeTools() { return api::testing::ToolsOf(kTools); }

// By a text of its template.
output::Format FormatNamed(std::string_view chat_template) {
  return output::Detect(chat_template, [](std::string_view) { return false; });
}

const std::vector<std::string> kTemplates = {"tools <tool_call> <think>",
                                             "tools <|python_tag|>",
                                             "tools [TOOL_CALLS] [THINK]",
                                             "tools [TOOL_CALLS] [ARGS]",
                                             "tools <|tool_call> <|channel>thought",
                                             "tools <|channel|>",
                                             "tools <|/tool_call|>",
                                             "tools <function=",
                                             "tools <TOOLCALL>",
                                             "tools <|tool_call_start|>",
                                             "tools <|tool_call|> <think>",
                                             "tools <tool_call> <arg_key> <think>",
                                             "tools <tool_call> <function= <think>",
                                             "tools <seed:tool_call> <seed:think>",
                                             "tools <minimax:tool_call> <think>",
                                             "tools <｜tool▁sep｜> ```json <think>",
                                             "tools <｜tool▁sep｜> <think>",
                                             "tools <|tool_call_begin|>",
                                             "tools <|tool_call:begin|>",
                                             "tools <|START_ACTION|> <|START_THINKING|> <|START_RESPONSE|>",
                                             "tools <|tools_prefix|>",
                                             "tools <|function_call|>"};

class AnswerGrammars : public ::testing::Test {
 protected:
  AnswerGrammars() {
    auto model = Load(kDemoModel, [](float, std::string_view) {});
    EXPECT_TRUE(model.has_value());
    tokenizer_ = model->tokenizer;
    ends_ = model->end_of_generation;
  }

  // A cache is one model's; here each answer is another one's.
  auto Compile(const ConstraintInputs& inputs) {
    constraint::ConstraintCache constraints([this] { return IndexVocabulary(*tokenizer_, ends_); }, kPlenty);
    return CompileAnswerConstraint(inputs, *tokenizer_, constraints);
  }

  // An answer that continues with random tokens after `begin`; empty when it may not begin so.
  std::string Write(const ConstraintInputs& inputs, const std::string& begin, std::mt19937& random) {
    auto compiled = Compile(inputs);
    EXPECT_TRUE(compiled.has_value()) << compiled.error().message;
    if (!compiled || *compiled == nullptr) return {};
    constraint::Matcher matcher(*compiled);
    const auto tokens = tokenizer_->Encode(begin, tokenizer::SpecialTokens::kParse);
    for (const api::TokenId token : *tokens) {
      if (!matcher.Accept(token)) return {};
    }
    std::string text = begin;
    for (int i = 0; i < 4000; ++i) {
      const auto allowed = matcher.Mask().Ids();
      EXPECT_FALSE(allowed.empty()) << text;
      if (allowed.empty()) return {};
      const api::TokenId token = allowed[random() % allowed.size()];
      EXPECT_TRUE(matcher.Accept(token));
      if ((*compiled)->vocabulary().EndsGeneration(token)) return text;
      text += tokenizer_->TokenBytes(token);
    }
    ADD_FAILURE() << "no end of " << text;
    return {};
  }

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  std::unordered_set<api::TokenId> ends_;
};

struct Read {
  std::string text;
  std::string thinking;
  std::vector<api::ToolCall> calls;
};

Read ReadBack(const ConstraintInputs& inputs, const std::string& text) {
  const auto parser = output::MakeParser({.format = inputs.format,
                                          .thinking_open = inputs.thinking_open,
                                          .expects_calls = true,
                                          .tools = SomeTools()});
  output::OutputChunks chunks;
  parser->Feed(text, chunks);
  parser->Finish(chunks);
  Read read;
  for (auto& chunk : chunks) {
    if (chunk.kind == output::OutputChunk::Kind::kText) read.text += chunk.text;
    if (chunk.kind == output::OutputChunk::Kind::kThinking) read.thinking += chunk.text;
    if (chunk.kind == output::OutputChunk::Kind::kCall) read.calls.push_back(chunk.call);
  }
  return read;
}

void ExpectMatchesTools(const api::ToolCall& call) {
  const json arguments = json::parse(call.arguments_json);
  if (call.name == "now") {
    EXPECT_EQ(call.arguments_json, "{}");
  } else if (call.name == "set_flag") {
    EXPECT_EQ(arguments.size(), 1U);
    EXPECT_TRUE(arguments["on"].is_boolean());
  } else {
    EXPECT_EQ(call.name, "get_weather");
    EXPECT_EQ(arguments.size(), 2U);
    EXPECT_TRUE(arguments["city"] == "Paris" || arguments["city"] == "\"Rome\" / 東京")
        << call.arguments_json;
    EXPECT_TRUE(arguments["days"] >= 1 && arguments["days"] <= 7) << call.arguments_json;
  }
}

TEST_F(AnswerGrammars, ForcedCallsOfEveryFamilyAreReadBack) {
  std::mt19937 random(1);
  const std::vector<api::Tool> tools = SomeTools();
  for (const std::string& name : kTemplates) {
    const output::Format format = FormatNamed(name);
    const output::AnswerMarkup markup = output::MarkupOf(format);
    for (int turn = 0; turn < 12; ++turn) {
      api::Request request;
      request.tool_choice = api::ToolChoice::kRequired;
      request.single_tool_call = turn % 3 == 0;
      if (turn % 4 == 1) request.forced_tool = "set_flag";
      ConstraintInputs inputs{.request = request, .tools = tools, .format = format, .rendered = true};
      std::string begin;
      if (turn % 2 == 1 && !markup.thinking_begin.empty()) {
        inputs.may_think = true;
        begin = std::string(markup.thinking_begin) + "hm, so" + std::string(markup.thinking_end);
      }
      SCOPED_TRACE(std::string(format.family) + " " + std::to_string(turn));
      const std::string text = Write(inputs, begin, random);
      const Read read = ReadBack(inputs, text);
      EXPECT_EQ(read.text, "") << text;
      EXPECT_EQ(read.thinking, begin.empty() ? "" : "hm, so") << text;
      EXPECT_GE(read.calls.size(), 1U) << text;
      EXPECT_LE(read.calls.size(), request.single_tool_call ? 1U : 16U) << text;
      for (const auto& call : read.calls) {
        ExpectMatchesTools(call);
        EXPECT_TRUE(request.forced_tool.empty() || call.name == request.forced_tool) << text;
      }
    }
  }
}

// Some models always write their calls like that, and other arguments behind a marker that they have to
// write.
TEST_F(AnswerGrammars, AForcedCallNeedsNoMarker) {
  std::mt19937 random(3);
  const std::vector<api::Tool> tools = SomeTools();
  for (const std::string& name : kTemplates) {
    const output::Format format = FormatNamed(name);
    const output::ToolCallTemplate& calls = *output::MarkupOf(format).calls;
    if (format.harmony || calls.python || calls.tagged != nullptr) continue;  // no JSON
    api::Request request;
    request.tool_choice = api::ToolChoice::kRequired;
    const ConstraintInputs inputs{.request = request, .tools = tools, .format = format, .rendered = true};
    for (const std::string begin :
         {"{\"name\": \"now\", \"arguments\":", "```json\n{\n  \"name\": \"set_flag\",\n  \"arguments\": {\n",
          "[{\"name\":\"get_weather\",\"parameters\":{",
          "```\n{ \"name\": \"now\", \"parameters\" : {}\n}\n"}) {
      const std::string text = Write(inputs, begin, random);
      SCOPED_TRACE(fmt::format("{}: {}", format.family, text));
      ASSERT_NE(text, "");
      const Read read = ReadBack(inputs, text);
      EXPECT_EQ(read.text, "");
      ASSERT_GE(read.calls.size(), 1U);
      for (const auto& call : read.calls) ExpectMatchesTools(call);
    }
  }
}

TEST_F(AnswerGrammars, AFormatHoldsBehindThinking) {
  std::mt19937 random(2);
  for (const std::string& name : kTemplates) {
    const output::Format format = FormatNamed(name);
    const output::AnswerMarkup markup = output::MarkupOf(format);
    SCOPED_TRACE(format.family);
    api::Request request;
    request.format = api::OutputFormat{api::OutputFormat::Kind::kChoice, R"(["Yes","No"])", "format"};
    ConstraintInputs inputs{.request = request, .tools = {}, .format = format, .rendered = true};
    Read read = ReadBack(inputs, Write(inputs, "", random));
    EXPECT_TRUE(read.text == "Yes" || read.text == "No") << read.text;
    if (markup.thinking_begin.empty()) continue;
    const std::string thought = "hm, so" + std::string(markup.thinking_end);
    inputs.may_think = true;
    read = ReadBack(inputs, Write(inputs, std::string(markup.thinking_begin) + thought, random));
    EXPECT_EQ(read.thinking, "hm, so");
    EXPECT_TRUE(read.text == "Yes" || read.text == "No") << read.text;
    if (format.harmony) continue;
    inputs.thinking_open = true;
    read = ReadBack(inputs, Write(inputs, thought, random));
    EXPECT_EQ(read.thinking, "hm, so");
    EXPECT_TRUE(read.text == "Yes" || read.text == "No") << read.text;
  }
}

// What a call of `name` begins with where nothing forces one.
std::string CallPrefix(const output::AnswerMarkup& markup, std::string_view name) {
  std::string begin(markup.calls->open);
  begin += markup.calls->tagged != nullptr ? markup.calls->tagged->head : markup.calls->head;
  const size_t number = begin.find(output::kCallNumber);
  if (number != std::string::npos) begin.replace(number, output::kCallNumber.size(), "7");
  if (!begin.starts_with(markup.call_marker)) begin.insert(0, markup.call_marker);
  return begin + std::string(name);
}

TEST_F(AnswerGrammars, CallsThatTheModelBeginsAreOfTheTools) {
  std::mt19937 random(3);
  const std::vector<api::Tool> tools = SomeTools();
  for (const std::string& name : kTemplates) {
    const output::Format format = FormatNamed(name);
    const output::AnswerMarkup markup = output::MarkupOf(format);
    SCOPED_TRACE(format.family);
    const api::Request request;
    const ConstraintInputs inputs{.request = request, .tools = tools, .format = format, .rendered = true};
    const std::string before = format.harmony ? "" : "Let me see: {1}\n";
    std::string open(markup.calls->open);
    if (!open.starts_with(markup.call_marker)) open.insert(0, markup.call_marker);
    for (int turn = 0; turn < 8; ++turn) {
      const std::string text =
          Write(inputs, before + (format.harmony ? std::string(markup.call_marker) : open), random);
      const Read read = ReadBack(inputs, text);
      EXPECT_EQ(read.text, before.substr(0, before.size() - (before.empty() ? 0 : 1))) << text;
      EXPECT_GE(read.calls.size(), 1U) << text;
      for (const auto& call : read.calls) ExpectMatchesTools(call);
    }
    if (markup.calls->python) continue;
    EXPECT_NE(Write(inputs, before + CallPrefix(markup, "set_f"), random), "");
    EXPECT_EQ(Write(inputs, before + CallPrefix(markup, "set_x"), random), "");
    EXPECT_EQ(Write(inputs, before + CallPrefix(markup, "rm"), random), "");
  }
}

// Gpt-oss names the recipient behind the channel or behind the role.
TEST_F(AnswerGrammars, HarmonyCallsByRoleAreOfTheToolsToo) {
  std::mt19937 random(4);
  const std::vector<api::Tool> tools = SomeTools();
  const output::Format format = FormatNamed("tools <|channel|>");
  const api::Request request;
  const ConstraintInputs inputs{.request = request, .tools = tools, .format = format, .rendered = true};
  const std::string thought = "<|channel|>analysis<|message|>hm, to=functions.rm, so<|end|>";
  for (const std::string& before : {std::string(), thought + "<|start|>assistant"}) {
    for (const std::string channel :
         {"<|channel|>commentary json<|message|>", "<|channel|>commentary <|constrain|>json<|message|>",
          "<|channel|>commentary<|message|>"}) {
      const std::string text = Write(inputs, before + " to=functions.get_weather" + channel, random);
      const Read read = ReadBack(inputs, text);
      EXPECT_EQ(read.text, "") << text;
      EXPECT_EQ(read.thinking, before.empty() ? "" : "hm, to=functions.rm, so") << text;
      ASSERT_EQ(read.calls.size(), 1U) << text;
      EXPECT_EQ(read.calls[0].name, "get_weather");
      ExpectMatchesTools(read.calls[0]);
    }
    EXPECT_NE(Write(inputs, before + " to=functions.now<|channel|>", random), "");
    EXPECT_EQ(Write(inputs, before + " to=functions.rm", random), "");
    EXPECT_EQ(Write(inputs, before + " to=browser.open", random), "");
    EXPECT_EQ(Write(inputs, before + " to=functions.now<|channel|>final", random), "");
  }
  // A message to nobody is text.
  const Read read = ReadBack(inputs, Write(inputs, "<|channel|>final<|message|>Go to=x", random));
  EXPECT_TRUE(read.text.starts_with("Go to=x")) << read.text;
}

TEST_F(AnswerGrammars, ToolsThatMayNotBeCalledNowAreNot) {
  std::mt19937 random(5);
  std::vector<api::Tool> tools = SomeTools();
  tools[0].callable = tools[1].callable = false;
  for (const std::string& name : kTemplates) {
    const output::Format format = FormatNamed(name);
    const output::AnswerMarkup markup = output::MarkupOf(format);
    if (markup.calls->python) continue;
    SCOPED_TRACE(format.family);
    api::Request request;
    const ConstraintInputs inputs{.request = request, .tools = tools, .format = format, .rendered = true};
    EXPECT_EQ(Write(inputs, CallPrefix(markup, "set_f"), random), "");
    EXPECT_NE(Write(inputs, CallPrefix(markup, "no"), random), "");
    tools[2].callable = false;
    EXPECT_EQ(Write(inputs, std::string(markup.call_marker), random), "");
    tools[2].callable = true;
  }
}

TEST_F(AnswerGrammars, TheMarkerOfACallMeansNothingInThinking) {
  const std::vector<api::Tool> tools = SomeTools();
  const output::Format format = FormatNamed(kTemplates[0]);
  const api::Request request;
  ConstraintInputs inputs{.request = request,
                          .tools = tools,
                          .format = format,
                          .rendered = true,
                          .thinking_open = true,
                          .may_think = true};
  const auto accepts = [&](const std::string& text) {
    constraint::Matcher matcher(*Compile(inputs));
    const auto tokens = tokenizer_->Encode(text, tokenizer::SpecialTokens::kParse);
    return std::ranges::all_of(*tokens, [&](api::TokenId token) { return matcher.Accept(token); });
  };
  EXPECT_TRUE(accepts("I could write <tool_call> here</think>so <tool_call>\n{\"name\": \"now\""));
  EXPECT_FALSE(accepts("hm</think><tool_call>here"));
  EXPECT_TRUE(accepts("<|im_start|> is a special token"));
  inputs.thinking_open = false;
  EXPECT_TRUE(accepts("<think>I could write <tool_call> here</think>so <|im_start|> <tool_call>\n"));
  EXPECT_FALSE(accepts("no thought\n<tool_call>here"));
  EXPECT_TRUE(accepts("in a sentence <tool_call> is text"));
}

TEST_F(AnswerGrammars, ModelsThatCallInPythonDo) {
  std::mt19937 random(4);
  const output::Format format = FormatNamed("tools <|tool_call_start|>");
  const std::string open(output::MarkupOf(format).calls->open);
  api::Request request;
  request.tool_choice = api::ToolChoice::kRequired;
  const std::vector<api::Tool> tools = SomeTools();
  const ConstraintInputs inputs{.request = request, .tools = tools, .format = format, .rendered = true};
  for (const std::string begin :
       {R"(get_weather(city="Paris", days=7), now(), )", "set_flag(on=True)", "now()"}) {
    const std::string text = Write(inputs, open + begin, random);
    const Read read = ReadBack(inputs, text);
    EXPECT_GE(read.calls.size(), 1U) << text;
    EXPECT_EQ(read.text, "") << text;
    for (const auto& call : read.calls) ExpectMatchesTools(call);
  }
  for (const std::string begin :
       {R"({"name")", "set_flag(on=true", "set_flag()", "get_weather(days=7", "now(a"}) {
    EXPECT_EQ(Write(inputs, open + begin, random), "");
  }
  // What is not a list of named arguments makes all calls JSON.
  const auto any = api::testing::ToolsOf(
      R"([{"type":"function","function":{"name":"now"}},)"
      R"({"type":"function","function":{"name":"free","parameters":{"type":"object"}}}])");
  const ConstraintInputs free_inputs{.request = request, .tools = any, .format = format, .rendered = true};
  EXPECT_EQ(Write(free_inputs, open + "now(", random), "");
  EXPECT_NE(Write(free_inputs, open + R"({"name": "now")", random), "");
}

// Families that write arguments between tags: strings as they are, JSON where a text would not tell what is
// meant.
TEST_F(AnswerGrammars, ModelsThatCallInTagsDo) {
  const auto tools = api::testing::ToolsOf(
      R"([{"type":"function","function":{"name":"write","parameters":{"type":"object","properties":{)"
      R"("path":{"type":"string"},"mode":{"enum":["new","over"]},"note":{"anyOf":[{"type":"string"},)"
      R"({"type":"null"}]},"tags":{"type":"array","items":{"type":"string"}},"mask":{"type":"integer"}},)"
      R"("required":["path","mode"]}}},)"
      R"({"type":"function","function":{"name":"mail","parameters":{"type":"object","properties":{)"
      R"("to":{"type":"string","pattern":"^[a-z]+@x$"}},"required":["to"]}}}])");
  struct Written {
    std::string chat_template, begin, name_end, key, value, end, finish;
  };
  const Written all[] = {
      {"tools <tool_call> <arg_key>", "<tool_call>", "\n", "<arg_key>", "</arg_key>\n<arg_value>",
       "</arg_value>\n", "</tool_call>"},
      {"tools <tool_call> <arg_key>", "<tool_call>", "", "<arg_key>", "</arg_key><arg_value>", "</arg_value>",
       "</tool_call>"},
      {"tools <tool_call> <function=", "<tool_call>\n<function=", ">\n", "<parameter=", ">\n",
       "\n</parameter>\n", "</function>\n</tool_call>"},
      {"tools <minimax:tool_call>", "<minimax:tool_call>\n<invoke name=\"", "\">\n", "<parameter name=\"",
       "\">", "</parameter>\n", "</invoke>\n</minimax:tool_call>"},
  };
  api::Request request;
  request.tool_choice = api::ToolChoice::kRequired;
  for (const Written& form : all) {
    SCOPED_TRACE(form.begin + form.name_end);
    const ConstraintInputs inputs{
        .request = request, .tools = tools, .format = FormatNamed(form.chat_template), .rendered = true};
    const auto compiled = Compile(inputs);
    ASSERT_TRUE(compiled.has_value() && *compiled != nullptr);
    const auto accepts = [&](const std::string& text) {
      constraint::Matcher matcher(*compiled);
      const auto tokens = tokenizer_->Encode(text, tokenizer::SpecialTokens::kParse);
      return std::ranges::all_of(*tokens, [&](api::TokenId token) { return matcher.Accept(token); });
    };
    const auto argument = [&](const std::string& name, const std::string& value) {
      return form.key + name + form.value + value + form.end;
    };
    const std::string head = form.begin + "write" + form.name_end;
    const std::string path = argument("path", "a <b> \"é\"\nif (x < 3) {"), mode = argument("mode", "new");
    const std::string whole = head + path + mode + argument("note", "null") +
                              argument("tags", R"(["x", "y"])") + argument("mask", "7") + form.finish;
    EXPECT_TRUE(accepts(whole)) << whole;
    const auto parser = output::MakeParser({.format = inputs.format, .expects_calls = true, .tools = tools});
    output::OutputChunks chunks;
    for (const char c : whole) parser->Feed(std::string_view(&c, 1), chunks);
    parser->Finish(chunks);
    ASSERT_EQ(chunks.size(), 1U) << whole;
    EXPECT_EQ(
        json::parse(chunks[0].call.arguments_json),
        json::parse(
            R"({"path":"a <b> \"é\"\nif (x < 3) {","mode":"new","note":null,"tags":["x","y"],"mask":7})"));
    EXPECT_TRUE(accepts(head + path + mode + form.finish));
    EXPECT_FALSE(accepts(head + mode));
    EXPECT_FALSE(accepts(head + path + form.finish));
    EXPECT_FALSE(accepts(head + path + argument("mode", "other")));
    EXPECT_FALSE(accepts(head + path + mode + argument("mask", "x")));
    EXPECT_FALSE(accepts(head + path + mode + argument("more", "x")));
    EXPECT_FALSE(accepts(form.begin + "mail" + form.name_end)) << "its pattern needs JSON";
    const std::string open(output::MarkupOf(inputs.format).calls->open);
    EXPECT_TRUE(accepts(open + R"({"name": "mail", "arguments": {"to": "me@x"}})"));
    EXPECT_FALSE(accepts(open + R"({"name": "mail", "arguments": {"to": "me"})"));
    EXPECT_FALSE(accepts(open + R"({"name": "write")"));
  }
}

// DeepSeek V3.2 says of each argument whether it is a text.
TEST_F(AnswerGrammars, ArgumentsInTagsMaySayThatTheyAreTexts) {
  const auto tools = api::testing::ToolsOf(
      R"([{"type":"function","function":{"name":"write","parameters":{"type":"object","properties":{)"
      R"("path":{"type":"string"},"mask":{"type":"integer"}},"required":["path","mask"]}}}])");
  api::Request request;
  request.tool_choice = api::ToolChoice::kRequired;
  const ConstraintInputs inputs{
      .request = request, .tools = tools, .format = FormatNamed("tools ｜DSML｜"), .rendered = true};
  const auto compiled = Compile(inputs);
  ASSERT_TRUE(compiled.has_value() && *compiled != nullptr);
  const auto call = [](const std::string& path, const std::string& mask) {
    return "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"write\">\n<｜DSML｜parameter name=\"path\" "
           "string=\"" +
           path + "\">12</｜DSML｜parameter>\n<｜DSML｜parameter name=\"mask\" string=\"" + mask +
           "\">7</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>";
  };
  const auto accepts = [&](const std::string& text) {
    constraint::Matcher matcher(*compiled);
    const auto tokens = tokenizer_->Encode(text, tokenizer::SpecialTokens::kParse);
    return std::ranges::all_of(*tokens, [&](api::TokenId token) { return matcher.Accept(token); });
  };
  EXPECT_TRUE(accepts(call("true", "false")));
  EXPECT_FALSE(accepts(call("false", "false")));
  EXPECT_FALSE(accepts(call("true", "true")));
  const auto parser = output::MakeParser({.format = inputs.format, .expects_calls = true, .tools = tools});
  output::OutputChunks chunks;
  parser->Feed(call("true", "false"), chunks);
  parser->Finish(chunks);
  ASSERT_EQ(chunks.size(), 1U);
  EXPECT_EQ(json::parse(chunks[0].call.arguments_json), json::parse(R"({"path":"12","mask":7})"));
}

TEST_F(AnswerGrammars, NothingIsConstrainedWithoutFormatAndTools) {
  api::Request request;
  const output::Format format = FormatNamed(kTemplates[0]);
  ConstraintInputs inputs{.request = request, .tools = {}, .format = format, .rendered = true};
  EXPECT_EQ(*Compile(inputs), nullptr);
  const auto tools = api::testing::ToolsOf(R"([{"type":"function","function":{"name":"f"}}])");
  inputs.tools = tools;
  EXPECT_NE(*Compile(inputs), nullptr);
  inputs.rendered = false;
  EXPECT_EQ(*Compile(inputs), nullptr);
}

// Other tools stay constrained, and the names of all.
TEST_F(AnswerGrammars, AKeywordThatCannotBeEnforcedLeavesItsPropertyFree) {
  std::mt19937 random(6);
  const output::Format format = FormatNamed(kTemplates[0]);
  const auto tools = api::testing::ToolsOf(
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"contains":{"const":1}},"b":{"const":1}}}}},)"
      R"({"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{"b":{"const":1}},)"
      R"("required":["b"]}}}])");
  const api::Request request;
  const ConstraintInputs inputs{.request = request, .tools = tools, .format = format, .rendered = true};
  const std::string begin = "<tool_call>\n{\"name\": \"";
  EXPECT_NE(Write(inputs, begin + R"(f", "arguments": {"a": [2], "b": 1})", random), "");
  EXPECT_EQ(Write(inputs, begin + R"(f", "arguments": {"b": 2)", random), "");
  EXPECT_EQ(Write(inputs, begin + R"(f", "arguments": {"x")", random), "");
  EXPECT_EQ(Write(inputs, begin + R"(g", "arguments": {"b": 2)", random), "");
  EXPECT_EQ(Write(inputs, begin + "h", random), "");
}

}  // namespace
}  // namespace quire::runner::engine
