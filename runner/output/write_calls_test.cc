// Calls that are written for the history are read back as the same calls.
#include "runner/output/write_calls.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runner/output/testing/parse_whole.h"

namespace quire::runner::output {
namespace {

using nlohmann::ordered_json;

std::string Written(const Format& format, const std::vector<api::ToolCall>& calls) {
  std::string text;
  for (const CallText& part : WriteCalls(format, calls)) text += part.text;
  return text;
}

TEST(WriteCalls, AreReadBack) {
  const std::vector<api::ToolCall> calls = {
      {"", "add", R"({"a":12,"b":null,"opts":{"x":[true,"é\n\""]},"note":"x, \"}]"})"},
      {"", "get_weather", R"({"city":"Paris"})"}};
  for (const char* chat_template :
       {"tools <tool_call>", "tools [TOOL_CALLS]", "tools [ARGS] [TOOL_CALLS]", "tools <|tool_call_start|>",
        "tools <tool_call> <function=", "tools <tool_call> <arg_key>", "tools <minimax:tool_call>",
        "tools ｜DSML｜", "tools <|tool_call>", "tools <｜tool▁sep｜>", "tools <｜tool▁sep｜> ```json",
        "tools <|tool_call_begin|>", "tools <|tool_call:begin|>", "tools <|START_ACTION|>",
        "tools <|tools_prefix|>", "tools <function=", "tools <TOOLCALL>", "tools <|tool_call|>",
        "tools <|/tool_call|>"}) {
    const Format format = testing::FormatOf(chat_template);
    const std::string text = Written(format, calls);
    const testing::Answer answer = testing::Parse(format, text);
    EXPECT_EQ(answer.calls.size(), 2U) << chat_template << "\n" << text << "\n" << answer.text;
    if (answer.calls.size() != 2U) continue;
    EXPECT_TRUE(answer.calls[0].starts_with("add")) << answer.calls[0];
    EXPECT_EQ(ordered_json::parse(answer.arguments[0]), ordered_json::parse(calls[0].arguments_json)) << text;
    EXPECT_EQ(ordered_json::parse(answer.arguments[1]), ordered_json::parse(calls[1].arguments_json)) << text;
  }
}

TEST(WriteCalls, OnlyNamesAndArgumentsAreTheRequests) {
  const Format format = testing::FormatOf("tools <|tool_call_start|>");
  for (const CallText& part :
       WriteCalls(format, std::vector<api::ToolCall>{{"", "<|f|>", R"({"k":"<|v|>"})"}})) {
    EXPECT_EQ(part.markup, part.text.find("|f|") == std::string::npos &&
                               part.text.find("|v|") == std::string::npos && part.text != "k")
        << part.text;
  }
  EXPECT_EQ(Written(format, {{"", "f", R"({"a":"x","b":[1,true,null]})"}}),
            "<|tool_call_start|>[f(a=\"x\", b=[1, True, None])]<|tool_call_end|>");
}

TEST(WriteCalls, MalformedArgumentsStayAsTheyAre) {
  Format generic;
  generic.calls = &GenericCalls();
  EXPECT_EQ(Written(generic, {{"", "f", "{\"a\": "}}),
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": }\n</tool_call>");
  EXPECT_EQ(Written(generic, {{"", "f\"", ""}}),
            "<tool_call>\n{\"name\": \"f\\\"\", \"arguments\": {}}\n</tool_call>");
}

}  // namespace
}  // namespace quire::runner::output
