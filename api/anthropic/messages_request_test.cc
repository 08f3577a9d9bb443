#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "api/anthropic/messages.h"
#include "api/base/image_use.h"
#include "api/base/testing/shown_images.h"

namespace quire::api::anthropic {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Body(const std::string& messages, const std::string& more = "") {
  return R"({"model":"M","max_tokens":9,"messages":[)" + messages + "]" + more + "}";
}

const std::string kHi = R"({"role":"user","content":"hi"})";

std::vector<Message> MessagesOf(const std::string& messages, const std::string& more = "") {
  auto parsed = ParseMessages(Body(messages, more));
  EXPECT_TRUE(parsed) << parsed.error().message;
  if (!parsed) return {};
  EXPECT_TRUE(SettleImages(parsed->image_use, false, parsed->messages)) << "of a model that takes text only";
  return std::move(parsed->messages);
}

// "role:content", with what else a message holds in brackets.
std::string Describe(const Message& message) {
  std::string described = message.role + ":" + message.content;
  for (const ToolCall& call : message.tool_calls) {
    described += "[" + call.id + " " + call.name + call.arguments_json + "]";
  }
  if (!message.tool_call_id.empty()) described += "[" + message.tool_call_id + " " + message.tool_name + "]";
  if (!message.thinking.empty()) described += "[" + message.thinking + "]";
  return described;
}

std::vector<std::string> Describe(const std::vector<Message>& messages) {
  std::vector<std::string> described;
  for (const Message& message : messages) described.push_back(Describe(message));
  return described;
}

TEST(AnthropicRequest, TakesEveryField) {
  const auto parsed = ParseMessages(Body(
      kHi,
      R"(,"stream":true,"temperature":0.5,"top_p":0.25,"top_k":5,"stop_sequences":["a","b"],"keep_alive":"2s",)"
      R"("cache_salt":"s","metadata":{"user_id":"u"},"service_tier":"auto","betas":["x"],"unheard_of":[1])"));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->model, "M");
  EXPECT_TRUE(parsed->stream);
  EXPECT_EQ(parsed->options.num_predict, 9);
  EXPECT_EQ(parsed->options.temperature, 0.5F);
  EXPECT_EQ(parsed->options.top_p, 0.25F);
  EXPECT_EQ(parsed->options.top_k, 5);
  EXPECT_THAT(*parsed->options.stop, ElementsAre("a", "b"));
  EXPECT_EQ(parsed->keep_alive, std::chrono::seconds(2));
  EXPECT_EQ(parsed->cache_salt, "s");
}

TEST(AnthropicRequest, SystemIsTheFirstMessageInEitherForm) {
  const std::vector<std::string> expected = {"system:Be brief.", "user:hi"};
  EXPECT_EQ(Describe(MessagesOf(kHi, R"(,"system":"Be brief.")")), expected);
  EXPECT_EQ(
      Describe(MessagesOf(
          kHi, R"(,"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}])")),
      expected);
  EXPECT_THAT(
      Describe(MessagesOf(kHi, R"(,"system":[{"type":"text","text":"a"},{"type":"text","text":"b"}])")),
      ElementsAre("system:a\nb", "user:hi"));
  EXPECT_THAT(Describe(MessagesOf(kHi, R"(,"system":"")")), ElementsAre("user:hi"));
}

// Messages and tools that are marked as restore points, by their place; tools count from 100.
std::vector<int> MarkedPlaces(const std::string& messages, const std::string& more = "") {
  const auto parsed = ParseMessages(Body(messages, more));
  EXPECT_TRUE(parsed) << parsed.error().message;
  std::vector<int> places;
  for (size_t i = 0; parsed && i < parsed->messages.size(); ++i) {
    if (parsed->messages[i].restore_point) places.push_back(static_cast<int>(i));
  }
  for (size_t i = 0; parsed && i < parsed->tools.tools.size(); ++i) {
    if (parsed->tools.tools[i].restore_point) places.push_back(100 + static_cast<int>(i));
  }
  return places;
}

TEST(AnthropicRequest, CacheControlMarksRestorePoints) {
  const std::string mark = R"("cache_control":{"type":"ephemeral"})";
  const std::string hour = R"("cache_control":{"type":"ephemeral","ttl":"1h"})";
  const auto text = [](const std::string& more) {
    return R"({"type":"text","text":"a")" + (more.empty() ? "" : "," + more) + "}";
  };
  EXPECT_THAT(MarkedPlaces(kHi, R"(,"system":[)" + text("") + "," + text(mark) + "]"), ElementsAre(0));
  EXPECT_THAT(MarkedPlaces(kHi + R"(,{"role":"assistant","content":[)" + text(hour) + "]}," + kHi),
              ElementsAre(1));
  EXPECT_THAT(MarkedPlaces(R"({"role":"user","content":[)" + text(mark) + "," + text("") + "]}," + kHi),
              ElementsAre(0));
  EXPECT_THAT(MarkedPlaces(R"({"role":"user","content":"hi",)" + mark + "}"), ElementsAre(0));
  EXPECT_THAT(MarkedPlaces(kHi + "," + kHi, "," + mark), ElementsAre(1));
  EXPECT_THAT(MarkedPlaces(kHi, R"(,"tools":[{"name":"f"},{"name":"g",)" + mark + "}]"), ElementsAre(101));
  const std::string call =
      R"({"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f",)" + mark + "}]}";
  const std::string result =
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"42",)" + mark + "}," +
      text("") + "]}";
  EXPECT_THAT(MarkedPlaces(kHi + "," + call + "," + result), ElementsAre(1, 2));
  EXPECT_THAT(MarkedPlaces(R"({"role":"user","content":[)" + text(R"("cache_control":null)") + "]}"),
              ElementsAre());
}

TEST(AnthropicRequest, RefusesOtherCacheControl) {
  const auto refused = [](const std::string& control, size_t count = 1) {
    std::string blocks;
    for (size_t i = 0; i < count; ++i) {
      blocks += (i > 0 ? "," : "") + (R"({"type":"text","text":"a","cache_control":)" + control + "}");
    }
    const auto parsed = ParseMessages(Body(R"({"role":"user","content":[)" + blocks + "]}"));
    return parsed ? std::string("parsed") : parsed.error().message;
  };
  constexpr const char* kMark = R"({"type":"ephemeral"})";
  EXPECT_EQ(refused(kMark, 4), "parsed");
  EXPECT_EQ(refused(kMark, 5), "A maximum of 4 blocks with cache_control may be provided. Found 5.");
  EXPECT_THAT(refused(R"({"type":"persistent"})"), HasSubstr("must be ephemeral"));
  EXPECT_THAT(refused(R"({"type":"ephemeral","ttl":"2h"})"), HasSubstr("must be 5m or 1h"));
  EXPECT_THAT(refused(R"({})"), HasSubstr("type"));
  EXPECT_THAT(refused("true"), HasSubstr("cache_control"));
}

TEST(AnthropicRequest, BlocksBecomeMessagesInTheirOrder) {
  EXPECT_THAT(
      Describe(MessagesOf(
          R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"unheard_of","x":1},{"type":"text","text":"b"}]},)"
          R"({"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},)"
          R"({"type":"redacted_thinking","data":"x"},{"type":"text","text":"c"},)"
          R"({"type":"tool_use","id":"t1","name":"f","input":{"b":1,"a":[2]}},{"type":"tool_use","id":"t2","name":"g"}]},)"
          R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"42"},)"
          R"({"type":"tool_result","tool_use_id":"t2","is_error":true,"content":[{"type":"text","text":"x"}]},)"
          R"({"type":"tool_result","tool_use_id":"t3"},{"type":"text","text":"go on"}]},)"
          R"({"role":"assistant","content":"And"})")),
      ElementsAre("user:a\n[content of type \"unheard_of\" omitted: this model takes text only]\nb",
                  R"(assistant:c[t1 f{"b":1,"a":[2]}][t2 g{}][hm])", "tool:42[t1 f]", "tool:x[t2 g]",
                  "tool:[t3 ]", "user:go on", "assistant:And"));
}

TEST(AnthropicRequest, ContentThatIsNoTextIsALineInTheHistoryAndInResultsOfTools) {
  const std::string image =
      R"({"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}})";
  EXPECT_THAT(
      Describe(MessagesOf(
          R"({"role":"user","content":[)" + image +
          R"(,{"type":"text","text":"see"}]},)"
          R"({"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}},)"
          R"({"type":"tool_use","id":"t1","name":"f"}]},)"
          R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[)" +
          image + "]}]}")),
      ElementsAre(
          "user:[image omitted: this model takes text only]\nsee",
          "assistant:[content of type \"server_tool_use\" omitted: this model takes text only]\n[t1 f{}]",
          "tool:[image omitted: this model takes text only]\n[t1 f]"));
}

TEST(AnthropicRequest, ImagesKeepTheirPlaces) {
  const std::string image =
      R"({"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}})";
  auto parsed = ParseMessages(Body(
      R"({"role":"user","content":[{"type":"text","text":"a"},)" + image +
      R"(,{"type":"text","text":"b"}]},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"f"}]},)"
      R"({"role":"system","content":"later"},)"
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"c"},)" +
      image + "]}," + image + "]}"));
  ASSERT_TRUE(parsed) << parsed.error().message;
  ASSERT_TRUE(SettleImages(parsed->image_use, true, parsed->messages));
  std::vector<std::string> shown;
  for (const Message& message : parsed->messages) shown.push_back(message.role + ":" + WithImages(message));
  EXPECT_THAT(shown, ElementsAre("user:a{hi}b", "assistant:", "tool:c{hi}", "user:later{hi}"));
}

TEST(AnthropicRequest, ImagesThatAreNotSentAreRefusedByName) {
  const std::string place = "messages[0].content[0].source";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"type":"url","url":"https://a/b.png"})", place + ".url"},
      {R"({"type":"file","file_id":"f"})", place + ".type"},
      {R"({"type":"base64","data":"*"})", place + ".data"},
      {R"({"type":"base64"})", place + ".data"},
      {"5", place}};
  for (const auto& [source, field] : cases) {
    auto parsed =
        ParseMessages(Body(R"({"role":"user","content":[{"type":"image","source":)" + source + "}]}"));
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(SettleImages(parsed->image_use, true, parsed->messages).error().field, field);
    const Error text_only = SettleImages(parsed->image_use, false, parsed->messages).error();
    EXPECT_EQ(text_only.field, "messages[0].content[0].type");
    EXPECT_EQ(text_only.code, ErrorCode::kUnsupported);
  }
}

TEST(AnthropicRequest, DocumentsAndSearchResultsThatAreTextReachThePrompt) {
  EXPECT_THAT(
      Describe(MessagesOf(
          R"({"role":"user","content":[{"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"d"}},)"
          R"({"type":"search_result","title":"S","source":"https://x","content":[{"type":"text","text":"found"}]},)"
          R"({"type":"text","text":"a"}]})")),
      ElementsAre("user:T\nd\nS\nhttps://x\nfound\na"));
}

TEST(AnthropicRequest, SystemMessagesMayStandAnywhere) {
  const auto system = [](const std::string& text) {
    return R"({"role":"system","content":")" + text + R"("})";
  };
  const std::string answer = R"({"role":"assistant","content":"yes"})";
  EXPECT_THAT(Describe(MessagesOf(system("be brief") + "," + system("be kind") + "," + kHi)),
              ElementsAre("system:be brief\nbe kind", "user:hi"));
  EXPECT_THAT(Describe(MessagesOf(kHi + "," + system("now in verse") + "," + answer)),
              ElementsAre("user:hi\nnow in verse", "assistant:yes"));
  EXPECT_THAT(Describe(MessagesOf(kHi + "," + answer + "," + system("be kind") + "," + kHi)),
              ElementsAre("user:hi", "assistant:yes", "user:be kind\nhi"));
  EXPECT_THAT(Describe(MessagesOf(kHi + "," + answer + "," + system("go on"))),
              ElementsAre("user:hi", "assistant:yes", "user:go on"));
  // Behind results of tools, which stay next to their calls.
  const std::string result =
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"1"}]})";
  EXPECT_THAT(Describe(MessagesOf(kHi + "," + answer + "," + system("be kind") + "," + result)),
              ElementsAre("user:hi", "assistant:yes", testing::StartsWith("tool:1"), "user:be kind"));
}

TEST(AnthropicRequest, WhatIsNotReadIsLogged) {
  const auto parsed =
      ParseMessages(Body(kHi, R"(,"grammar":"root ::= [a]","metadata":{"user_id":"u"},"seed":1,"top_k":3)"));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_THAT(parsed->unknown_options, testing::UnorderedElementsAre("grammar", "seed"));
}

TEST(AnthropicRequest, AnthropicsOwnTools) {
  const std::string tools =
      R"([{"type":"web_search_20250305","name":"web_search","max_uses":5},{"type":"bash_20250124","name":"bash"},)"
      R"({"type":"text_editor_20250728","name":"str_replace_based_edit_tool","max_characters":10000},)"
      R"({"type":"memory_20250818","name":"memory"}])";
  const auto parsed = ParseMessages(Body(kHi, R"(,"tools":)" + tools));
  ASSERT_TRUE(parsed) << parsed.error().message;
  ASSERT_EQ(parsed->tools.tools.size(), 3U);
  EXPECT_EQ(parsed->tools.tools[0].name, "bash");
  EXPECT_THAT(parsed->tools.tools[0].parameters_json, testing::HasSubstr("command"));
  EXPECT_THAT(parsed->tools.tools[1].definition_json, testing::HasSubstr("str_replace_based_edit_tool"));
  EXPECT_THAT(parsed->unknown_options, ElementsAre("tools.web_search"));
  const auto forced =
      ParseMessages(Body(kHi, R"(,"tool_choice":{"type":"tool","name":"web_search"},"tools":)" + tools));
  ASSERT_FALSE(forced);
  EXPECT_EQ(forced.error().field, "tool_choice.name");
  const auto any = ParseMessages(Body(
      kHi, R"(,"tool_choice":{"type":"any"},"tools":[{"type":"web_search_20250305","name":"web_search"}])"));
  ASSERT_FALSE(any);
}

TEST(AnthropicRequest, OnlyResultsLeaveNoEmptyTurn) {
  EXPECT_THAT(
      Describe(MessagesOf(
          kHi + R"(,{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"1"}]})")),
      ElementsAre("user:hi", "tool:1[t ]"));
  EXPECT_THAT(Describe(MessagesOf(R"({"role":"user","content":[]})")), ElementsAre("user:"));
}

TEST(AnthropicRequest, TheRequestNeverCutsAndDefaultsAreTheDialects) {
  auto parsed = ParseMessages(Body(kHi));
  ASSERT_TRUE(parsed);
  ModelDefaults defaults{.options = {}, .system = "Model's."};
  defaults.options.top_k = 3;
  const Request request = ToRequest(*parsed, defaults);
  EXPECT_EQ(request.overflow, Overflow::kRefuse);
  EXPECT_FALSE(request.shift);
  EXPECT_EQ(request.params.temperature, 1.0F);
  EXPECT_EQ(request.params.top_p, 1.0F);
  EXPECT_EQ(request.params.top_k, 3);
  EXPECT_EQ(request.params.num_predict, 9);
  EXPECT_THAT(Describe(std::get<ChatPrompt>(request.prompt).messages),
              ElementsAre("system:Model's.", "user:hi"));
}

TEST(AnthropicRequest, ThinkingIsRelaxed) {
  for (const std::string thinking :
       {R"({"type":"enabled","budget_tokens":1024})", R"({"type":"disabled"})", R"({"type":"adaptive"})"}) {
    EXPECT_TRUE(ParseMessages(Body(kHi, ",\"thinking\":" + thinking))) << thinking;
  }
  EXPECT_TRUE(ParseMessages(Body(kHi, R"(,"output_config":{"effort":"low"})")));
}

TEST(AnthropicRequest, ToolsAndThinkingReachTheRequest) {
  const auto request = [](const std::string& more) {
    auto parsed = ParseMessages(Body(kHi, more));
    EXPECT_TRUE(parsed) << parsed.error().message;
    return ToRequest(*std::move(parsed), {});
  };
  const std::string tools = R"(,"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}])";
  const Request offered = request(tools);
  const Tool& tool = std::get<ChatPrompt>(offered.prompt).tools.at(0);
  EXPECT_EQ(tool.name, "f");
  EXPECT_EQ(tool.parameters_json, R"({"type":"object"})");
  EXPECT_EQ(
      tool.definition_json,
      R"({"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}})");
  EXPECT_EQ(offered.tool_choice, ToolChoice::kAuto);
  EXPECT_EQ(offered.think, Think::kOff) << "nothing was said";
  EXPECT_TRUE(offered.think_optional);
  EXPECT_TRUE(
      std::get<ChatPrompt>(request(tools + R"(,"tool_choice":{"type":"none"})").prompt).tools.empty());
  EXPECT_TRUE(
      request(tools + R"(,"tool_choice":{"type":"auto","disable_parallel_tool_use":true})").single_tool_call);
  const Request named = request(tools + R"(,"tool_choice":{"type":"tool","name":"f"})");
  EXPECT_EQ(named.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(named.forced_tool, "f");
  EXPECT_TRUE(named.single_tool_call);
  EXPECT_FALSE(
      request(tools + R"(,"tool_choice":{"type":"any","disable_parallel_tool_use":false})").single_tool_call);
  const std::string thinking = R"(,"thinking":{"type":"enabled","budget_tokens":1024})";
  EXPECT_EQ(request(thinking).think, Think::kOn);
  EXPECT_EQ(request(thinking + R"(,"output_config":{"effort":"xhigh"})").think, Think::kMax);
  EXPECT_EQ(request(R"(,"output_config":{"effort":"low"})").think, Think::kOff);
}

TEST(AnthropicRequest, CountingNeedsNoLimit) {
  EXPECT_TRUE(ParseCountTokens(R"({"model":"M","messages":[)" + kHi + "]}"));
  EXPECT_FALSE(ParseMessages(R"({"model":"M","messages":[)" + kHi + "]}"));
}

TEST(AnthropicRequest, ErrorsNameTheField) {
  struct Case {
    std::string body, field, text;
    ErrorCode code = ErrorCode::kInvalidArgument;
  };
  const std::vector<Case> cases = {
      {"{", "", "JSON"},
      {R"({"max_tokens":1,"messages":[]})", "model", "required"},
      {R"({"model":"M","max_tokens":1})", "messages", "non-empty"},
      {Body(""), "messages", "non-empty"},
      {Body("5"), "messages[0]", "object"},
      {Body(R"({"content":"x"})"), "messages[0].role", "required"},
      {Body(R"({"role":"tool","content":"x"})"), "messages[0].role", "assistant"},
      {Body(R"({"role":"user"})"), "messages[0].content", "required"},
      {Body(R"({"role":"user","content":5})"), "messages[0].content", "blocks"},
      {Body(R"({"role":"user","content":[{"text":"x"}]})"), "messages[0].content[0].type", "required"},
      {Body(R"({"role":"user","content":[{"type":"text"}]})"), "messages[0].content[0].text", "required"},
      {Body(R"({"role":"user","content":[{"type":"tool_use","id":"a","name":"b"}]})"),
       "messages[0].content[0].type", "not allowed"},
      {Body(R"({"role":"assistant","content":[{"type":"tool_use","name":"b"}]})"),
       "messages[0].content[0].id", "required"},
      {Body(R"({"role":"user","content":[{"type":"tool_result"}]})"), "messages[0].content[0].tool_use_id",
       "required"},
      {Body(kHi, R"(,"thread":{"id":"t"})"), "thread", "thread", ErrorCode::kUnsupported},
      {Body(kHi, R"(,"mcp_servers":[{"url":"x"}])"), "mcp_servers", "mcp_servers", ErrorCode::kUnsupported},
      {Body(kHi, R"(,"container":"c")"), "container", "container", ErrorCode::kUnsupported},
      {Body(kHi, R"(,"system":5)"), "system", "string"},
      {Body(kHi, R"(,"system":[{"type":"image"}])"), "system[0].type", "text"},
      {Body(kHi, R"(,"stop_sequences":[1])"), "stop_sequences", "string"},
      {Body(kHi, R"(,"thinking":{"type":"deep"})"), "thinking.type", "enabled"},
      {Body(kHi, R"(,"output_config":{"effort":"so-so"})"), "output_config.effort", "low"},
      {Body(kHi, R"(,"tool_choice":{"type":"any"})"), "tool_choice.type", "tools"},
      {Body(kHi, R"(,"tool_choice":{"type":"some"})"), "tool_choice.type", "auto"},
      {Body(kHi, R"(,"tools":[{"name":"f"}],"tool_choice":{"type":"tool"})"), "tool_choice.name", "required"},
      {Body(kHi, R"(,"tools":[{"name":"f"}],"tool_choice":{"type":"tool","name":"g"})"), "tool_choice.name",
       "not one of the tools"},
      {Body(kHi, R"(,"tools":{})"), "tools", "array"},
      {Body(kHi, R"(,"tools":[5])"), "tools[0]", "object"},
      {Body(kHi, R"(,"tools":[{"name":"f"},{}])"), "tools[1].name", "required"},
      {Body(kHi, R"(,"tools":[{"name":"f","input_schema":5}])"), "tools[0].input_schema", "object"},
      {Body(kHi, R"(,"tools":[{"type":"mcp_1","name":"w"}],"tool_choice":{"type":"tool","name":"w"})"),
       "tool_choice.name", "does not have", ErrorCode::kUnsupported},
  };
  for (const Case& one : cases) {
    const auto parsed = ParseMessages(one.body);
    ASSERT_FALSE(parsed) << one.body;
    EXPECT_EQ(parsed.error().field, one.field) << one.body;
    EXPECT_EQ(parsed.error().code, one.code) << one.body;
    EXPECT_THAT(parsed.error().message, HasSubstr(one.text)) << one.body;
  }
}

}  // namespace
}  // namespace quire::api::anthropic
