// Answers that had to be calls, cut at every byte: a call with the arguments that are complete, and no text.
#include "runner/output/cut_calls.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runner/output/testing/parse_whole.h"

namespace quire::runner::output {
namespace {

using testing::Answer;
using testing::FormatOf;

using Calls = std::vector<std::string>;

struct CutForm {
  Format format;
  std::string text;
};

// Each family as constrained calls are written: add with {"a": 12, "note": "x, \"}]"}, then now.
std::vector<CutForm> Forms() {
  const std::string arguments = R"({"a": 12, "note": "x, \"}]"})";
  const std::string add = R"({"name": "add", "arguments": )" + arguments + "}";
  const std::string now = R"({"name": "now", "arguments": {}})";
  const std::string section = "<｜tool▁call▁begin｜>", separator = "<｜tool▁sep｜>";
  const std::string kimi = "<|tool_call_begin|>functions.", kimi_arguments = "<|tool_call_argument_begin|>";
  const std::string function =
      "<parameter=a>\n12\n</parameter>\n<parameter=note>\nx, \"}]\n</parameter>\n</function>";
  return {
      {FormatOf("tools <tool_call> <think>"),
       "<tool_call>\n" + add + "\n</tool_call>\n<tool_call>\n" + now + "\n</tool_call>"},
      {FormatOf("tools <tool_call> <think>"), "```json\n" + add + "\n" + now + "\n```"},
      {FormatOf("tools <|python_tag|>"), R"({"name": "add", "parameters": )" + arguments + "}"},
      {FormatOf("tools [TOOL_CALLS] [THINK]"), "[TOOL_CALLS][" + add + ", " + now + "]"},
      {FormatOf("tools [TOOL_CALLS] [ARGS]"),
       "[TOOL_CALLS]add[ARGS]" + arguments + "[TOOL_CALLS]now[ARGS]{}"},
      {FormatOf("tools <|tool_call_start|>"),
       "<|tool_call_start|>[add(a=12, note=\"x, \\\"}]\"), now()]<|tool_call_end|>"},
      {FormatOf("tools <tool_call> <function="),
       "<tool_call>\n<function=add>\n" + function +
           "\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>"},
      {FormatOf("tools <tool_call> <arg_key>"),
       "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>12</arg_value>\n<arg_key>note</arg_key>\n"
       "<arg_value>x, \"}]</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>"},
      {FormatOf("tools <minimax:tool_call>"),
       "<minimax:tool_call>\n<invoke name=\"add\">\n<parameter name=\"a\">12</parameter>\n<parameter "
       "name=\"note\">x, \"}]</parameter>\n</invoke>\n<invoke "
       "name=\"now\">\n</invoke>\n</minimax:tool_call>"},
      {FormatOf("tools <|tool_call> <|channel>thought"),
       "<|tool_call>call:add" + arguments + "<tool_call|><|tool_call>call:now{}<tool_call|>"},
      {FormatOf("tools <｜tool▁sep｜>"), "<｜tool▁calls▁begin｜>" + section + "add" + separator + arguments +
                                             "<｜tool▁call▁end｜>" + section + "now" + separator +
                                             "{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {FormatOf("tools <|tool_call_begin|>"),
       "<|tool_calls_section_begin|>" + kimi + "add:0" + kimi_arguments + arguments + "<|tool_call_end|>" +
           kimi + "now:1" + kimi_arguments + "{}<|tool_call_end|><|tool_calls_section_end|>"},
      {FormatOf("tools <|tools_prefix|>"),
       R"(<|tools_prefix|>[{"add": )" + arguments + R"(}, {"now": {}}]<|tools_suffix|>)"},
      {FormatOf("tools <function="), "<function=add>" + arguments + "</function><function=now>{}</function>"},
      {testing::SpelledFormatOf("tools <TOOLCALL>"), "<TOOLCALL>[" + add + ", " + now + "]</TOOLCALL>"},
      {FormatOf("tools <|channel|>"),
       "<|channel|>commentary to=functions.add <|constrain|>json<|message|>" + arguments + "<|call|>"},
  };
}

TEST(CutCalls, AtEveryByte) {
  const Calls kStates = {"", "add{}", R"(add{"a":12})", R"(add{"a":12,"note":"x, \"}]"})",
                         R"(add{"a":12,"note":"x, \"}]"} now{})"};
  for (const CutForm& form : Forms()) {
    size_t state = 0;
    const std::string_view text = form.text;
    for (size_t size = 0; size <= text.size();
         size += std::max<size_t>(testing::TokenSize(form.format, text.substr(size)), 1)) {
      const Answer answer = testing::Parse(
          {.format = form.format, .expects_calls = true, .forced = true, .tools = testing::SomeTools()},
          form.text.substr(0, size));
      SCOPED_TRACE(std::string(form.format.family) + ": " + form.text.substr(0, size));
      EXPECT_EQ(answer.text, "");
      std::string calls;
      for (const std::string& call : answer.calls) calls += (calls.empty() ? "" : " ") + call;
      while (state + 1 < kStates.size() && calls != kStates[state]) ++state;
      ASSERT_EQ(calls, kStates[state]) << "what is there never goes again, and no value is cut";
    }
    EXPECT_GE(state, 3U) << form.text;
  }
}

// Where one tool can be called, the call is known from its first byte on.
TEST(CutCalls, OfOneTool) {
  const std::vector<api::Tool> one =
      api::testing::ToolsOf(R"([{"type":"function","function":{"name":"now"}}])");
  for (const CutForm& form :
       std::vector<CutForm>{{FormatOf("tools <tool_call> <think>"), "<tool_call>"},
                            {FormatOf("tools <tool_call> <think>"), "<tool_call>\n{\"na"},
                            {FormatOf("tools <|python_tag|>"), "{\""},
                            {FormatOf("tools [TOOL_CALLS] [ARGS]"), "[TOOL_CALLS]n"},
                            {testing::SpelledFormatOf("tools <TOOLCALL>"), "<TOOL"},
                            {FormatOf("tools <|channel|>"), "<|channel|>comm"}}) {
    const Answer answer = testing::Parse(
        {.format = form.format, .expects_calls = true, .forced = true, .tools = one}, form.text);
    EXPECT_EQ(answer.calls, Calls{"now{}"}) << form.text;
    EXPECT_EQ(answer.text, "");
  }
  const Answer thinking = testing::Parse(
      {.format = FormatOf("tools <tool_call> <think>"), .expects_calls = true, .forced = true, .tools = one},
      "<think>hm");
  EXPECT_EQ(thinking.thinking, "hm");
  EXPECT_EQ(thinking.calls, Calls{});
}

TEST(CutCalls, ACallThatNobodyForcedStaysText) {
  const Answer answer = testing::Parse(FormatOf("tools <tool_call> <think>"),
                                       "<tool_call>\n{\"name\": \"now\", \"arguments\": {");
  EXPECT_EQ(answer.calls, Calls{});
  EXPECT_EQ(answer.text, "\n{\"name\": \"now\", \"arguments\": {");
}

}  // namespace
}  // namespace quire::runner::output
