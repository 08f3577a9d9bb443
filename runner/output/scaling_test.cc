// Answers that make a parser hold text back for long, token by token: the sizes would take minutes where a
// token costs what is held.
#include <gtest/gtest.h>

#include "runner/output/testing/parse_whole.h"
#include "runner/output/tool_call_syntax.h"

namespace quire::runner::output {
namespace {

using testing::Answer;
using testing::FormatOf;
using testing::Parse;

constexpr int kTokens = 150'000;
const std::string kSpace(128, ' ');

struct StreamedAnswer {
  Format format;
  std::string before;
  std::string token;
  std::string after;
  std::string text;  // of the answer; with `spaced` behind the space
  std::string thinking = {};
  bool thinking_open = false;
  bool spaced = false;
};

Answer Stream(const StreamedAnswer& one) {
  const auto parser = MakeParser({.format = one.format,
                                  .thinking_open = one.thinking_open,
                                  .expects_calls = true,
                                  .tools = testing::SomeTools()});
  OutputChunks chunks;
  testing::Feed(*parser, one.format, one.before, chunks);
  for (int i = 0; i < kTokens; ++i) testing::Feed(*parser, one.format, one.token, chunks);
  testing::Feed(*parser, one.format, one.after, chunks);
  parser->Finish(chunks);
  Answer answer;
  testing::Add(answer, chunks);
  return answer;
}

TEST(Scaling, HeldSpaceCostsNothingMore) {
  const Format qwen = FormatOf("tools <tool_call> <think>");
  const Format granite = FormatOf("tools <|tool_call|> <think></think> <response></response>");
  const Format llama = FormatOf("tools <|python_tag|>");
  const Format mistral = FormatOf("tools [TOOL_CALLS] [THINK]");
  const std::string call = R"({"name": "now", "arguments": {}})";
  for (const StreamedAnswer& one : std::vector<StreamedAnswer>{
           {qwen, "a", kSpace, "b", "b", "", false, true},
           {qwen, "a", kSpace, "<tool_call>" + call + "</tool_call>", "a"},
           {qwen, "a", kSpace, "</think>b", "b", "a", true},
           {granite, "<think>a</think>", kSpace, "<response>b</response>", "b", "a"},
           {granite, "<think>a</think><response>b", kSpace, "</response>", "b", "a"},
           {granite, "<think>a</think><response>b </response>", kSpace, "", "b", "a"},
           {granite, "<think>a</think><response>b" + kSpace + kSpace + "</response>", " ", "", "b", "a"},
           {llama, "", kSpace, "b", "b", "", false, true},
           {llama, call + ";", kSpace, "b", "b", "", false, true},
           {mistral, "[TOOL_CALLS]", kSpace, "b", "b", "", false, true},
       }) {
    SCOPED_TRACE(std::string(one.format.family) + ": " + one.before);
    const Answer answer = Stream(one);
    EXPECT_EQ(answer.thinking, one.thinking);
    if (one.spaced) {
      EXPECT_GE(answer.text.size(), kTokens * kSpace.size());
      EXPECT_TRUE(answer.text.ends_with(kSpace + one.text));
    } else {
      EXPECT_EQ(answer.text, one.text);
    }
  }
}

TEST(Scaling, ALongCallIsSearchedOnce) {
  const std::string words(100, 'x');
  const Answer qwen =
      Stream({FormatOf("tools <tool_call>"), R"(<tool_call>{"name": "f", "arguments": {"a": ")", words,
              "\"}}</tool_call>", ""});
  ASSERT_EQ(qwen.calls.size(), 1U);
  EXPECT_GT(qwen.calls[0].size(), kTokens * words.size());
  const Answer harmony =
      Stream({FormatOf("tools <|channel|>"), R"(<|channel|>commentary to=functions.f<|message|>{"a": ")",
              words, "\"}<|call|>", ""});
  ASSERT_EQ(harmony.calls.size(), 1U);
  EXPECT_GT(harmony.calls[0].size(), kTokens * words.size());
}

std::string Repeated(std::string_view text, int times) {
  std::string repeated;
  for (int i = 0; i < times; ++i) repeated += text;
  return repeated;
}

TEST(Scaling, MarkersInAMalformedCallAreRemovedInOnePass) {
  constexpr int kMarkers = 2'000'000;
  const Format qwen = FormatOf("tools <tool_call> <think>");
  EXPECT_EQ(Parse(qwen, "<tool_call>x" + Repeated("<think>", kMarkers) + "y</tool_call>z").text, "xyz");
  EXPECT_EQ(Parse(testing::SpelledFormatOf("tools <tool_call> <think>"),
                  "<tool_call>x" + Repeated("<thi", 1000) + Repeated("nk>", 1000) + "y</tool_call>z")
                .text,
            "xyz")
      << "those that a removal joins, too";
  const Format gemma = FormatOf("tools <|tool_call> <|channel>thought");
  EXPECT_EQ(Parse(gemma, "<|tool_call>" + Repeated("<|\"|>", kMarkers) + "<tool_call|>").text,
            std::string(kMarkers, '"'));
}

// Each form of a call with many arguments, the first of them twice.
TEST(Scaling, ManyArgumentsCostTheirNumber) {
  constexpr int kMembers = 200'000;
  const auto members = [](std::string_view open, std::string_view between, std::string_view close) {
    std::string text;
    for (int i = 0; i <= kMembers; ++i) {
      text.append(open).append("k").append(std::to_string(i % kMembers)).append(between);
      text.append(std::to_string(i)).append(close);
    }
    return text;
  };
  struct Form {
    ReadCalls read;
    std::string text;
  };
  const std::string in_dict = members("'", "': ", ", ");
  for (const Form& form : std::vector<Form>{
           {ReadPythonicCalls, "[f(" + members("", "=", ", ") + ")]"},
           {ReadPythonicCalls, "[f(a={" + in_dict + "})]"},
           {ReadTaggedCalls, "<function=f>" + members("<parameter=", ">", "</parameter>") + "</function>"},
           {ReadTaggedCalls, "f" + members("<arg_key>", "</arg_key><arg_value>", "</arg_value>")},
           {ReadGemmaCalls, "call:f{" + members("", ":", ",") + "z:1}"},
       }) {
    SCOPED_TRACE(form.text.substr(0, 20));
    std::vector<api::ToolCall> calls;
    ASSERT_EQ(form.read(form.text, Tools(testing::SomeTools()), calls), Reading::kCalls);
    const std::string& arguments = calls[0].arguments_json;
    EXPECT_NE(arguments.find(R"({"k0":200000,"k1":1,)"), std::string::npos);
    EXPECT_NE(arguments.find(R"(,"k199999":199999)"), std::string::npos);
  }
}

// The end tag in an open JSON string, and in a text that no reader can tell to be open.
TEST(Scaling, ApparentEndsOfACall) {
  const Format qwen = FormatOf("tools <tool_call> <think>");
  const std::string open = R"(<tool_call>{"name": "f", "arguments": {"a": ")";
  const Answer whole = Stream({qwen, open, "</tool_call>", "\"}}</tool_call>", ""});
  ASSERT_EQ(whole.calls.size(), 1U);
  EXPECT_GT(whole.calls[0].size(), kTokens * std::string_view("</tool_call>").size());
  EXPECT_EQ(Stream({qwen, open, "</tool_call>", "", ""}).text,
            open.substr(std::string_view("<tool_call>").size()));

  const Format gemma = FormatOf("tools <|tool_call> <|channel>thought");
  const std::string quote = "<|\"|>";
  const Answer text =
      Stream({gemma, "<|tool_call>call:f{s:" + quote, "<tool_call|>", quote + "}<tool_call|>", ""});
  EXPECT_EQ(text.text, "call:f{s:\"" + quote + "}") << "too many apparent ends: text from the first on";
  const Answer call = Parse(
      gemma, "<|tool_call>call:f{s:" + quote + Repeated("<tool_call|>", 1000) + quote + "}<tool_call|>");
  ASSERT_EQ(call.calls.size(), 1U);
}

// Calls that never end, in each of which the next one begins.
TEST(Scaling, CallsInsideCalls) {
  for (const auto& [format, begin] : std::vector<std::pair<Format, std::string>>{
           {FormatOf("tools <tool_call> <think>"), "<tool_call>"},
           {FormatOf("tools <tool_call> <think>"), "<tool_call>{\"\\\""},
           {FormatOf("tools [TOOL_CALLS] [THINK]"), "[TOOL_CALLS][\"\\\""},
           {FormatOf("tools <|python_tag|>"), "<|python_tag|>{\"\\\""},
           {FormatOf("tools <minimax:tool_call>"),
            "<minimax:tool_call><invoke name=\"add\"><parameter name=\"tags\">[\"\\\""},
       }) {
    SCOPED_TRACE(begin);
    const Answer answer = Stream({format, "", begin, "", ""});
    EXPECT_TRUE(answer.calls.empty());
    EXPECT_EQ(answer.text.find(format.calls->begin), std::string::npos);
  }
}

TEST(Scaling, ValuesThatNeverEnd) {
  std::string text = "<function=add>";
  for (int i = 0; i < kTokens; ++i) text += "<parameter=tags>[\"\\\"</parameter>";
  std::vector<api::ToolCall> calls;
  EXPECT_EQ(ReadTaggedCalls(text + "</function>", Tools(testing::SomeTools()), calls), Reading::kCalls);
}

// What is read again is bounded; where the bound lies does not depend on the cuts.
TEST(Scaling, TheBoundOfRereadingDoesNotDependOnTheCuts) {
  const std::string quote = "<|\"|>";
  const std::string now = R"({"name": "now"})";
  for (const auto& [format, text] : std::vector<std::pair<Format, std::string>>{
           {FormatOf("tools <|tool_call> <|channel>thought"),
            "<|tool_call>call:f{s:" + quote + Repeated("<tool_call|>", 3000) + quote + "}<tool_call|>"},
           {FormatOf("tools <tool_call> <think>"), Repeated("<tool_call>{\"\\\"x", 5000) + "</tool_call>"},
           {FormatOf("tools <tool_call> <think>"), Repeated("<tool_call>" + now, 3000) + "</tool_call>"},
           {FormatOf("tools [TOOL_CALLS] [THINK]"),
            Repeated("[TOOL_CALLS][\"\\\"", 5000) + "[TOOL_CALLS]now{}"},
       }) {
    SCOPED_TRACE(text.substr(0, 40));
    const Answer whole = Parse(format, text);
    for (const size_t step : {size_t{7}, size_t{4096}}) {
      const auto parser =
          MakeParser({.format = format, .expects_calls = true, .tools = testing::SomeTools()});
      std::vector<std::string> cut;
      for (size_t at = 0; at < text.size();) {
        size_t end = at;
        while (end < text.size() && end < at + step) {
          end += std::max<size_t>(testing::TokenSize(format, std::string_view(text).substr(end)), 1);
        }
        cut.push_back(text.substr(at, end - at));
        at = end;
      }
      EXPECT_TRUE(testing::ParseChunks(*parser, format, cut) == whole);
    }
  }
}

}  // namespace
}  // namespace quire::runner::output
