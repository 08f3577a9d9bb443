// JSON that a request brings for its template: in its order, and at a cost that is counted.
#include "runner/prompt/message_values.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>

#include "runner/work/work_budget.h"

namespace quire::runner {
namespace {

using jinja::Value;

constexpr int kKeys = 300'000;
constexpr uint64_t kUnitsPerKey = 60;

std::string ObjectOf(int keys) {
  std::string text;
  for (int i = 0; i < keys; ++i) text += fmt::format(R"({}"k{}":{})", i == 0 ? "{" : ",", i, i);
  return text + "}";
}

std::vector<Turn> CallWith(std::string arguments) {
  return {{{.role = "assistant", .content = "", .tool_calls = {{"c1", "f", std::move(arguments)}}}}};
}

const Value& ArgumentsOf(const Value& messages) {
  const Value& calls = *messages.as_list().items.front().as_dict().Find(std::string_view("tool_calls"));
  const Value& function = *calls.as_list().items.front().as_dict().Find(std::string_view("function"));
  return *function.as_dict().Find(std::string_view("arguments"));
}

// Each of these compared every key with all before it, in steps that nothing counted.
TEST(MessageValues, ObjectsOfManyKeysAreReadInLinearTime) {
  const std::string object = ObjectOf(kKeys);
  const WorkLimit limit(3 * kUnitsPerKey * kKeys);
  const auto messages = MessagesValue(CallWith(object), {}, {});
  ASSERT_TRUE(messages.has_value());
  EXPECT_EQ(ArgumentsOf(*messages).as_dict().entries().size(), size_t{kKeys});
  const auto tools = ToolsValue(std::vector<api::Tool>{{.name = "f", .definition_json = object}}, Value());
  ASSERT_TRUE(tools.has_value());
  EXPECT_EQ(tools->as_list().items.front().as_dict().entries().back().second.as_int(), kKeys - 1);
  const auto variables = ArgumentValues(object);
  ASSERT_TRUE(variables.has_value());
  EXPECT_EQ(variables->back().first, fmt::format("k{}", kKeys - 1));
}

TEST(MessageValues, ACanceledRequestStopsReading) {
  const std::string object = ObjectOf(10'000);
  const std::atomic<bool> canceled = true;
  const WorkBudget budget(std::chrono::hours(1), canceled);
  EXPECT_THROW(MessagesValue(CallWith(object), {}, {}), WorkStopped);
  const std::vector<api::Tool> tools = {{.name = "f", .definition_json = object}};
  EXPECT_THROW(ToolsValue(tools, Value()), WorkStopped);
  EXPECT_THROW(ArgumentValues(object), WorkStopped);
}

TEST(MessageValues, ManyCallsCountTogether) {
  std::vector<Turn> turns = CallWith(R"({"a":1})");
  std::vector<api::ToolCall>& calls = turns.front().message.tool_calls;
  calls.resize(20'000, calls.front());
  const WorkLimit limit(20'000);
  EXPECT_THROW(MessagesValue(turns, {}, {}), WorkStopped);
}

TEST(MessageValues, VariablesAreTheMembersOfAnObject) {
  const auto variables = ArgumentValues(R"({"b":[1],"a":"x","b":2})");
  ASSERT_TRUE(variables.has_value());
  ASSERT_EQ(variables->size(), 2U);
  EXPECT_EQ(variables->at(0).first, "b");
  EXPECT_EQ(variables->at(0).second.as_int(), 2);
  EXPECT_EQ(variables->at(1).second.as_view(), "x");
  for (const char* text : {"[]", "1", "{"}) {
    const auto refused = ArgumentValues(text);
    ASSERT_FALSE(refused.has_value()) << text;
    EXPECT_EQ(refused.error().field, "chat_template_kwargs");
  }
}

}  // namespace
}  // namespace quire::runner
