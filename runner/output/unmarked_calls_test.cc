// Calls without a marker: answers that are calls as a whole, and those that only look like it.
#include "runner/output/unmarked_calls.h"

#include <gtest/gtest.h>

#include "runner/output/testing/parse_whole.h"

namespace quire::runner::output {
namespace {

using testing::Answer;
using testing::FormatOf;
using testing::Parse;

using Calls = std::vector<std::string>;

const std::string kNow = R"({"name": "now", "arguments": {}})";
const std::string kOslo = R"({"name": "get_weather", "parameters": {"city": "Oslo"}})";
const std::string kOsloCall = R"(get_weather{"city":"Oslo"})";

std::vector<Format> Families() {
  return {FormatOf("tools <tool_call> <think>"),       FormatOf("tools <|python_tag|>"),
          FormatOf("tools [TOOL_CALLS] [THINK]"),      FormatOf("tools <|tool_call_start|>"),
          FormatOf("tools <tool_call> <function="),    FormatOf("tools <|tool_call> <|channel>thought"),
          testing::SpelledFormatOf("tools <TOOLCALL>")};
}

TEST(UnmarkedCalls, AnAnswerThatIsCallsAsAWhole) {
  struct AnswerCase {
    std::string text;
    Calls calls;
  };
  for (const AnswerCase& one : std::vector<AnswerCase>{
           {kNow, {"now{}"}},
           {"\n" + kOslo + "\n", {kOsloCall}},
           {kNow + "\n" + kOslo, {"now{}", kOsloCall}},
           {kNow + "; " + kOslo, {"now{}", kOsloCall}},
           {kNow + ",\n" + kOslo, {"now{}", kOsloCall}},
           {"[" + kNow + ", " + kOslo + "]", {"now{}", kOsloCall}},
           {"```json\n" + kNow + "\n```", {"now{}"}},
           {"```\n" + kNow + "\n" + kOslo + "\n```\n", {"now{}", kOsloCall}},
           {"```json\n[" + kNow + "]\n```", {"now{}"}},
           {"```json\n" + kNow + "\n```\n```json\n" + kOslo + "\n```", {"now{}", kOsloCall}},
           {"```json\n" + kNow, {"now{}"}},
           {R"({"arguments": {"city": "a \"}{\" b"}, "id": 7, "type": "function", "name": "get_weather"})",
            {R"(get_weather{"city":"a \"}{\" b"})"}},
       }) {
    for (const Format& format : Families()) {
      SCOPED_TRACE(std::string(format.family) + ": " + one.text);
      const Answer answer = Parse(format, one.text);
      EXPECT_EQ(answer.calls, one.calls);
      EXPECT_EQ(answer.text, "");
    }
  }
}

TEST(UnmarkedCalls, AnythingElseIsTextAsItStands) {
  for (const std::string& text : std::vector<std::string>{
           "Here: " + kNow,
           kNow + " That is the call.",
           "```json\n" + kNow + "\n```\nThat is the call.",
           "```python\n" + kNow + "\n```",
           "```jsonc\n" + kNow + "\n```",
           "`" + kNow + "`",
           R"({"name": "Ann", "arguments": {}})",
           R"({"name": "now"})",
           R"({"name": "now", "arguments": "{}"})",
           R"({"name": "now", "arguments": []})",
           R"({"name": "now", "arguments": {},})",
           R"({"name": "now", "arguments": {"a": oops}})",
           R"({"arguments": {}})",
           R"({"name": "now", "arguments": {})",
           "[" + kNow,
           "[" + kNow + ", 1]",
           kNow + R"({"name": "Ann", "arguments": {}})",
           "[1, 2]",
           "[]",
           "{}",
           "``",
           R"({"a": {"name": "now", "arguments": {}}})",
       }) {
    for (const Format& format : Families()) {
      SCOPED_TRACE(std::string(format.family) + ": " + text);
      const Answer answer = Parse(format, text);
      EXPECT_EQ(answer.calls, Calls{});
      EXPECT_EQ(answer.text, text);
    }
  }
}

// How many bytes of the text are held back.
size_t CountHeldBack(const std::string& text) {
  const Format qwen = FormatOf("tools <tool_call> <think>");
  const auto parser = MakeParser({.format = qwen, .expects_calls = true, .tools = testing::SomeTools()});
  OutputChunks chunks;
  parser->Feed(text, chunks);
  Answer answer;
  testing::Add(answer, chunks);
  return text.size() - answer.text.size();
}

TEST(UnmarkedCalls, TextIsHeldBackOnlyWhileItCanStillBeACall) {
  for (const std::string& text : std::vector<std::string>{
           "{", R"({"name": "no)", kNow, kNow + "\n", "```", "```js", "```json\n",
           "```json\n" + kNow + "\n``", R"({"id": [1, {"x": 2}], )", "[", "[" + kNow + ", "}) {
    EXPECT_EQ(CountHeldBack(text), text.size()) << text;
  }
  for (const std::string& text : std::vector<std::string>{
           "Hi", "{x", "{\"name\": \"Ann\"", "{\"name\": 1", "[1", "[\"", "``x", "```py", "```json\nx",
           kNow + "x", R"({"name": "now", "arguments": ")", R"({"arguments": 1)", "{}", kNow + "\n\nSo"}) {
    EXPECT_EQ(CountHeldBack(text), 0U) << text;
  }
}

TEST(UnmarkedCalls, BehindThinkingAndBehindCalls) {
  const Format qwen = FormatOf("tools <tool_call> <think>");
  const Answer thought = Parse(qwen, "<think>\nhm\n</think>\n\n```json\n" + kNow + "\n```");
  EXPECT_EQ(thought.thinking, "hm");
  EXPECT_EQ(thought.calls, Calls{"now{}"});
  EXPECT_EQ(Parse(qwen, "<tool_call>" + kNow + "</tool_call>\n" + kOslo).calls, (Calls{"now{}", kOsloCall}));
  EXPECT_EQ(Parse(qwen, "Text <tool_call>" + kNow + "</tool_call>\n" + kOslo).calls, Calls{"now{}"})
      << "the answer has text";
}

TEST(UnmarkedCalls, NoneWithoutToolsBesideAFormatOrInAContinuedText) {
  const Format qwen = FormatOf("tools <tool_call> <think>");
  const auto& tools = testing::SomeTools();
  EXPECT_EQ(Parse({.format = qwen}, kNow).text, kNow);
  EXPECT_EQ(Parse({.format = qwen, .expects_calls = true, .document = true, .tools = tools}, kNow).text,
            kNow);
  EXPECT_EQ(Parse({.format = qwen, .continues = true, .expects_calls = true, .tools = tools}, kNow).text,
            kNow);
}

}  // namespace
}  // namespace quire::runner::output
