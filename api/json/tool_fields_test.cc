#include "api/json/tool_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/base/limits.h"
#include "api/json/read.h"

namespace quire::api {
namespace {

constexpr const char* kTools =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},{"function":{"name":"g"}}])";

struct ReadTools {
  ToolUse use;
  FirstError error;
};

ReadTools ToolUseOf(const std::string& members) {
  const auto json = ReadJson("{" + members + "}");
  ReadTools read;
  Fields body(*json, "", read.error);
  read.use = GetToolUse(body);
  return read;
}

TEST(ToolFields, ChoicesOfTools) {
  const std::string tools = std::string(kTools) + ",";
  const ReadTools free = ToolUseOf(kTools);
  ASSERT_EQ(free.use.tools.size(), 2U);
  EXPECT_EQ(free.use.tools[0].name, "f");
  EXPECT_EQ(free.use.tools[0].parameters_json, R"({"type":"object"})");
  EXPECT_EQ(free.use.tools[0].definition_json,
            R"({"type":"function","function":{"name":"f","parameters":{"type":"object"}}})");
  EXPECT_EQ(free.use.tools[1].name, "g");
  EXPECT_EQ(free.use.tools[1].parameters_json, "");
  EXPECT_FALSE(free.use.tools[1].strict);
  EXPECT_EQ(free.use.choice, ToolChoice::kAuto);
  EXPECT_FALSE(free.use.single_call);
  EXPECT_TRUE(ToolUseOf(tools + R"("tool_choice":"none")").use.tools.empty());
  EXPECT_EQ(ToolUseOf(tools + R"("tool_choice":"required")").use.choice, ToolChoice::kRequired);
  const ReadTools named = ToolUseOf(tools + R"("tool_choice":{"type":"function","function":{"name":"g"}})");
  EXPECT_EQ(named.use.choice, ToolChoice::kRequired);
  EXPECT_EQ(named.use.forced_tool, "g");
  EXPECT_TRUE(named.use.single_call);
  EXPECT_FALSE(ToolUseOf(tools + R"("tool_choice":"required","parallel_tool_calls":true)").use.single_call);
  EXPECT_TRUE(ToolUseOf(tools + R"("parallel_tool_calls":false)").use.single_call);
  EXPECT_TRUE(ToolUseOf(R"("tools":[])").use.tools.empty());
  EXPECT_EQ(ToolUseOf(tools + R"("tool_choice":"any")").use.choice, ToolChoice::kRequired);
  const ReadTools others = ToolUseOf(
      R"("tools":[{"type":"web_search"},{"type":"custom","custom":{"name":"c"}},{"function":{"name":"f"}}])");
  EXPECT_FALSE(others.error);
  EXPECT_EQ(others.use.tools.size(), 1U);
  EXPECT_EQ(others.use.left_out, (std::vector<std::string>{"web_search", "custom"}));
  const ReadTools forced =
      ToolUseOf(R"("tools":[{"type":"custom","custom":{"name":"c"}},{"function":{"name":"f"}}],)"
                R"("tool_choice":{"type":"custom","custom":{"name":"c"}})");
  ASSERT_TRUE(forced.error);
  EXPECT_EQ(forced.error->field, "tool_choice.type");
}

TEST(ToolFields, ADefinitionKeepsWhatTemplatesMayRead) {
  const std::string definition =
      R"({"x":1,"function":{"strict":true,"parameters":{},"name":"f","more":[1.0,null]},"type":"function"})";
  const ReadTools read = ToolUseOf("\"tools\":[" + definition + "]");
  ASSERT_EQ(read.use.tools.size(), 1U);
  EXPECT_EQ(read.use.tools[0].definition_json, definition);
  EXPECT_EQ(read.use.tools[0].parameters_json, "{}");
  EXPECT_TRUE(read.use.tools[0].strict);
}

TEST(ToolFields, AllToolsTogetherAreBounded) {
  const auto error_of = [](size_t bytes) {
    return ToolUseOf(R"("tools":[{"function":{"name":"f","description":")" + std::string(bytes, 'x') +
                     R"("}},{"function":{"name":"g"}}])")
        .error;
  };
  EXPECT_FALSE(error_of(kToolBytesMax - 100));
  const FirstError error = error_of(kToolBytesMax - 50);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kTooLarge);
  EXPECT_EQ(error->field, "tools");
}

std::string FunctionList(size_t count, const std::string& name) {
  std::string list = "[";
  for (size_t i = 0; i < count; ++i) {
    list += (i > 0 ? "," : "") + (R"({"function":{"name":")" + name + std::to_string(i) + "\"}}");
  }
  return list + "]";
}

// Each name is looked up at once: a search through all tools for each takes minutes here.
TEST(ToolFields, AllowedToolsAreFoundAmongMany) {
  const std::string tools = "\"tools\":" + FunctionList(kToolsMax, "f");
  const auto with = [&tools](const std::string& allowed) {
    return ToolUseOf(tools + R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"tools":)" + allowed +
                     "}}");
  };
  const ReadTools all = with(FunctionList(kToolsMax, "f"));
  ASSERT_FALSE(all.error) << all.error->message;
  EXPECT_TRUE(all.use.tools.front().callable && all.use.tools.back().callable);
  const ReadTools one = with(FunctionList(1, "f"));
  EXPECT_TRUE(one.use.tools.front().callable && !one.use.tools.back().callable);
  EXPECT_EQ(with(FunctionList(1, "g")).error->field, "tool_choice.allowed_tools.tools[0].function");
  const ReadTools many = with(FunctionList(kToolsMax + 1, "f"));
  EXPECT_EQ(many.error->field, "tool_choice.allowed_tools.tools");
  EXPECT_EQ(many.error->code, ErrorCode::kTooLarge);
  EXPECT_EQ(ToolUseOf("\"tools\":" + FunctionList(kToolsMax + 1, "f")).error->field, "tools");
}

TEST(ToolFields, IllFormedOnesAreRefusedByName) {
  const std::string tools = std::string(kTools) + ",";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("tools":{})", "tools"},
      {R"("tools":[5])", "tools[0]"},
      {R"("tools":[{"type":"function"}])", "tools[0].function"},
      {R"("tools":[{"function":{}}])", "tools[0].function.name"},
      {R"("tools":[{"function":{"name":""}}])", "tools[0].function.name"},
      {R"("tools":[{"function":{"name":"f"}},{"function":{"name":5}}])", "tools[1].function.name"},
      {R"("tools":[{"function":{"name":"f","parameters":5}}])", "tools[0].function.parameters"},
      {R"("tools":[{"function":{"name":"f","strict":"yes"}}])", "tools[0].function.strict"},
      {R"("tool_choice":"required")", "tool_choice"},
      {tools + R"("tool_choice":"some")", "tool_choice"},
      {tools + R"("tool_choice":5)", "tool_choice"},
      {tools + R"("tool_choice":{})", "tool_choice.function"},
      {tools + R"("tool_choice":{"function":{}})", "tool_choice.function.name"},
      {tools + R"("tool_choice":{"function":{"name":"h"}})", "tool_choice"},
      {tools + R"("parallel_tool_calls":"no")", "parallel_tool_calls"}};
  for (const auto& [members, field] : cases) {
    const ReadTools read = ToolUseOf(members);
    ASSERT_TRUE(read.error) << members;
    EXPECT_EQ(read.error->field, field) << members;
    EXPECT_EQ(read.error->code, ErrorCode::kInvalidArgument) << members;
  }
}

TEST(ToolFields, LevelsOfThinking) {
  const auto think = [](const std::string& value) {
    const auto json = ReadJson(R"({"think":)" + value + R"(,"effort":)" + value + "}");
    FirstError error;
    Fields body(*json, "", error);
    const Think ollama_think = GetThink(body);
    FirstError effort_error;
    Fields effort_body(*json, "", effort_error);
    return std::pair(ollama_think, GetEffort(effort_body, "effort"));
  };
  EXPECT_EQ(think("null"), std::pair(Think::kUnset, Think::kUnset));
  EXPECT_EQ(think("true").first, Think::kOn);
  EXPECT_EQ(think("false").first, Think::kOff);
  EXPECT_EQ(think(R"("high")"), std::pair(Think::kHigh, Think::kHigh));
  EXPECT_EQ(think(R"("max")"), std::pair(Think::kMax, Think::kMax));
  EXPECT_EQ(think(R"("none")").second, Think::kOff);
  EXPECT_EQ(think(R"("minimal")").second, Think::kLow);
}

TEST(ToolFields, ResultsLearnTheirToolsNames) {
  std::vector<Message> messages = {
      {.role = "assistant", .content = "", .tool_calls = {{"c1", "f", "{}"}, {"c2", "g", "{}"}}},
      {.role = "tool", .content = "1", .tool_call_id = "c2"},
      {.role = "tool", .content = "2", .tool_name = "own", .tool_call_id = "c1"},
      {.role = "tool", .content = "3", .tool_call_id = "c3"},
      {.role = "tool", .content = "4"}};
  const auto json = ReadJson("{}");
  FirstError error;
  Fields body(*json, "", error);
  CopyBudget copies(body);
  NameToolResults(messages, 1, copies);
  EXPECT_EQ(messages[1].tool_name, "g");
  EXPECT_EQ(messages[2].tool_name, "own");
  EXPECT_EQ(messages[3].tool_name, "");
  EXPECT_EQ(messages[4].tool_name, "");
}

TEST(ToolFields, NamesOfResultsAreBoundedTogether) {
  const auto error_of = [](size_t results) {
    std::vector<Message> messages = {
        {.role = "assistant", .content = "", .tool_calls = {{"c", std::string(size_t{1} << 20, 'f'), "{}"}}}};
    for (size_t i = 0; i < results; ++i) {
      messages.push_back({.role = "tool", .content = "", .tool_call_id = "c"});
    }
    const auto json = ReadJson("{}");
    FirstError error;
    Fields body(*json, "", error);
    CopyBudget copies(body);
    NameToolResults(messages, 2, copies);
    return error ? error->field : "";
  };
  EXPECT_EQ(error_of(32), "");
  EXPECT_EQ(error_of(33), "messages");
}

}  // namespace
}  // namespace quire::api
