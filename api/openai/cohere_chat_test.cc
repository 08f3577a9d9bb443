// Cohere's /v2/chat: golden bodies and streams.
#include "api/openai/cohere_chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

namespace quire::api::openai {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string CohereBody(const std::string& more) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" + (more.empty() ? "" : "," + more) +
         "}";
}

Request CohereRequest(const std::string& body) {
  auto parsed = ParseCohereChat(body);
  EXPECT_TRUE(parsed.has_value()) << (parsed ? "" : parsed.error().message);
  return ToRequest(*std::move(parsed), {}, CohereOptions());
}

Error CohereErrorOf(const std::string& body) {
  const auto parsed = ParseCohereChat(body);
  EXPECT_FALSE(parsed.has_value()) << body;
  return parsed ? Error{} : parsed.error();
}

constexpr const char* kCohereTools =
    R"("tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}])";

TEST(CohereChatRequest, OptionsHaveItsNamesAndDefaults) {
  const Request plain = CohereRequest(CohereBody(""));
  EXPECT_FLOAT_EQ(plain.params.temperature, 0.3F);
  EXPECT_FLOAT_EQ(plain.params.top_p, 0.75F);
  EXPECT_EQ(plain.params.top_k, 0);
  EXPECT_EQ(plain.overflow, Overflow::kRefuse);
  const Request full = CohereRequest(
      CohereBody(R"("k":5,"p":0.9,"temperature":0,"seed":7,"max_tokens":9,"stop_sequences":["a","b"],)"
                 R"("frequency_penalty":0.5,"presence_penalty":0.25,"logprobs":true)"));
  EXPECT_EQ(full.params.top_k, 5);
  EXPECT_FLOAT_EQ(full.params.top_p, 0.9F);
  EXPECT_FLOAT_EQ(full.params.temperature, 0);
  EXPECT_EQ(full.params.seed, 7);
  EXPECT_EQ(full.params.num_predict, 9);
  EXPECT_EQ(full.params.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_FLOAT_EQ(full.params.frequency_penalty, 0.5F);
  EXPECT_FLOAT_EQ(full.params.presence_penalty, 0.25F);
  EXPECT_TRUE(full.logprobs);
}

TEST(CohereChatRequest, MessagesHavePlansDocumentsAndThinking) {
  const Request request = CohereRequest(
      R"({"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"Be kind."}]},)"
      R"({"role":"user","content":"hi"},{"role":"assistant","tool_plan":"I look.","content":[{"type":"thinking",)"
      R"("thinking":"hm"}],"tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"c1","content":[{"type":"document","document":{"data":{"a":1}}},)"
      R"({"type":"text","text":"!"}]},)"
      R"({"role":"assistant","content":"It is.","tool_plan":"It is."}]})");
  const auto& messages = std::get<ChatPrompt>(request.prompt).messages;
  ASSERT_EQ(messages.size(), 5U);
  EXPECT_EQ(messages[0].content, "Be kind.");
  EXPECT_EQ(messages[2].content, "I look.");
  EXPECT_EQ(messages[2].thinking, "hm");
  EXPECT_EQ(messages[2].tool_calls.at(0).name, "look");
  EXPECT_EQ(messages[3].content, "{\"a\":1}\n!");
  EXPECT_EQ(messages[3].tool_name, "look");
  EXPECT_EQ(messages[4].content, "It is.");
}

TEST(CohereChatRequest, ToolsFormatsAndThinking) {
  const std::string tools = kCohereTools;
  EXPECT_EQ(CohereRequest(CohereBody(tools)).tool_choice, ToolChoice::kAuto);
  EXPECT_EQ(CohereRequest(CohereBody(tools + R"(,"tool_choice":"REQUIRED")")).tool_choice,
            ToolChoice::kRequired);
  EXPECT_TRUE(std::get<ChatPrompt>(CohereRequest(CohereBody(tools + R"(,"tool_choice":"NONE")")).prompt)
                  .tools.empty());
  EXPECT_TRUE(std::get<ChatPrompt>(CohereRequest(CohereBody(tools + R"(,"strict_tools":true)")).prompt)
                  .tools.at(0)
                  .strict);
  const Request format =
      CohereRequest(CohereBody(R"("response_format":{"type":"json_object","json_schema":{"type":"array"}})"));
  ASSERT_TRUE(format.format);
  EXPECT_EQ(format.format->kind, OutputFormat::Kind::kSchema);
  EXPECT_EQ(format.format->text, R"({"type":"array"})");
  const Request thinks = CohereRequest(CohereBody(R"("thinking":{"type":"enabled","token_budget":40})"));
  EXPECT_EQ(thinks.think, Think::kOn);
  EXPECT_EQ(thinks.thinking_tokens_max, 40);
}

TEST(CohereChatRequest, DocumentsAreAVariableOfTheTemplate) {
  const auto variables = [](const std::string& more) {
    return std::get<ChatPrompt>(CohereRequest(CohereBody(more)).prompt).template_arguments_json;
  };
  EXPECT_EQ(variables(R"("documents":[])"), "");
  EXPECT_EQ(variables(R"("documents":["a",{"data":"b","id":"x"},{"data":{"title":"T","n":1}}])"),
            R"({"documents":[{"text":"a"},{"text":"b","doc_id":"x"},{"title":"T","n":1}]})");
  EXPECT_EQ(variables(R"("documents":[{"id":"x","data":{"doc_id":"own"}}],"chat_template_kwargs":{"k":1})"),
            R"({"k":1,"documents":[{"doc_id":"own"}]})");
}

TEST(CohereChatRequest, RefusesByName) {
  EXPECT_EQ(CohereErrorOf(R"({"model":"m"})").field, "messages");
  for (const char* wrong : {R"("a")", "{}", "[1]", R"([{"id":"a"}])", R"([{"data":1}])", "[null]"}) {
    EXPECT_EQ(CohereErrorOf(CohereBody(std::string(R"("documents":)") + wrong)).field, "documents") << wrong;
  }
  EXPECT_EQ(CohereErrorOf(CohereBody(R"("p":2)")).field, "p");
  EXPECT_EQ(CohereErrorOf(CohereBody(R"("tool_choice":"REQUIRED")")).field, "tool_choice");
  const auto ignored = ParseCohereChat(
      CohereBody(R"("safety_mode":"OFF","citation_options":{"mode":"OFF"},"documents":[],"x":1)"));
  ASSERT_TRUE(ignored);
  EXPECT_EQ(ignored->unknown_options, std::vector<std::string>{"x"});
}

Finished CohereDone(FinishReason reason = FinishReason::kStop, std::string stop = {}) {
  return {.reason = reason, .stop_string = std::move(stop), .usage = {20, 12, 3, 100, 2'000'000, 1'500'000}};
}

const std::vector<Event> kCohereStory = {
    PromptReady{20, 12},
    TextDelta{.text = "", .tokens = 1, .thinking = "hm"},
    TextDelta{"I l", {}, 1},
    TextDelta{"ook.", {}, 1},
    TextDelta{.text = "", .tokens = 1, .tool_calls = {{"c1", "f", R"({"b":1})"}}},
    TextDelta{.text = "", .tokens = 1, .tool_calls = {{"c2", "g", "{}"}}}};

std::string CohereReply(bool stream, std::vector<Event> events, const Event& end) {
  CohereChatEncoder encoder("ID", stream);
  events.push_back(end);
  std::string out;
  for (const Event& event : events) out += encoder.OnEvent(event);
  return out;
}

TEST(CohereChatReply, WholeReplies) {
  EXPECT_EQ(
      CohereReply(false, {PromptReady{20, 12}, TextDelta{"Hé", {}, 1}}, CohereDone()),
      R"({"id":"ID","finish_reason":"COMPLETE","message":{"role":"assistant","content":[{"type":"text","text":"Hé"}]},)"
      R"("usage":{"billed_units":{"input_tokens":20,"output_tokens":3},"tokens":{"input_tokens":20,"output_tokens":3},)"
      R"("cached_tokens":12}})");
  const json calls = json::parse(CohereReply(false, kCohereStory, CohereDone()));
  EXPECT_EQ(calls["finish_reason"], "TOOL_CALL");
  EXPECT_EQ(calls["message"],
            json::parse(
                R"({"role":"assistant","tool_plan":"I look.","tool_calls":[{"id":"c1","type":"function",)"
                R"("function":{"name":"f","arguments":"{\"b\":1}"}},{"id":"c2","type":"function","function":)"
                R"({"name":"g","arguments":"{}"}}],"content":[{"type":"thinking","thinking":"hm"},)"
                R"({"type":"text","text":"I look."}]})"));
  const auto reason = [](const Event& end) {
    return json::parse(CohereReply(false, {PromptReady{20, 12}}, end))["finish_reason"];
  };
  EXPECT_EQ(reason(CohereDone(FinishReason::kLength)), "MAX_TOKENS");
  EXPECT_EQ(reason(CohereDone(FinishReason::kStop, "x")), "STOP_SEQUENCE");
  EXPECT_EQ(json::parse(CohereReply(false, {}, CohereDone()))["message"]["content"], json::array());
}

TEST(CohereChatReply, AStreamHasAnEventForEachBeginningPieceAndEnd) {
  const auto delta = [](const std::string& type, const std::string& index, const std::string& message) {
    return "event: " + type + "\ndata: {\"type\":\"" + type + "\",\"index\":" + index +
           (message.empty() ? "" : ",\"delta\":{\"message\":" + message + "}") + "}\n\n";
  };
  const std::string start =
      "event: message-start\ndata: "
      "{\"type\":\"message-start\",\"id\":\"ID\",\"delta\":{\"message\":{\"role\":"
      "\"assistant\",\"content\":[],\"tool_plan\":\"\",\"tool_calls\":[],\"citations\":[]}}}\n\n";
  EXPECT_EQ(
      CohereReply(true, kCohereStory, CohereDone()),
      start + delta("content-start", "0", R"({"content":{"type":"thinking","thinking":""}})") +
          delta("content-delta", "0", R"({"content":{"thinking":"hm"}})") + delta("content-end", "0", "") +
          delta("content-start", "1", R"({"content":{"type":"text","text":""}})") +
          delta("content-delta", "1", R"({"content":{"text":"I l"}})") +
          delta("content-delta", "1", R"({"content":{"text":"ook."}})") + delta("content-end", "1", "") +
          delta("tool-call-start", "0",
                R"({"tool_calls":{"id":"c1","type":"function","function":{"name":"f","arguments":""}}})") +
          delta("tool-call-delta", "0", R"({"tool_calls":{"function":{"arguments":"{\"b\":1}"}}})") +
          delta("tool-call-end", "0", "") +
          delta("tool-call-start", "1",
                R"({"tool_calls":{"id":"c2","type":"function","function":{"name":"g","arguments":""}}})") +
          delta("tool-call-delta", "1", R"({"tool_calls":{"function":{"arguments":"{}"}}})") +
          delta("tool-call-end", "1", "") +
          "event: message-end\ndata: {\"type\":\"message-end\",\"id\":\"ID\",\"delta\":{\"finish_reason\":"
          "\"TOOL_CALL\",\"usage\":{\"billed_units\":{\"input_tokens\":20,\"output_tokens\":3},\"tokens\":"
          "{\"input_tokens\":20,\"output_tokens\":3},\"cached_tokens\":12}}}\n\n");
  EXPECT_THAT(CohereReply(true, {PromptReady{20, 12}, TextDelta{"a", {}, 1}},
                          Failed{{ErrorCode::kRunnerDied, "the runner died"}}),
              HasSubstr(R"("delta":{"finish_reason":"ERROR","error":"the runner died"}})"));
}

TEST(CohereChatReply, LogprobsHaveTheIdsOfTheirTokens) {
  const TextDelta delta{"ab", {{{"a", 5, -0.5F}, {}}, {{"b", 6, -1}, {}}}, 2};
  const json expected = json::parse(R"({"text":"ab","token_ids":[5,6],"logprobs":[-0.5,-1.0]})");
  const std::string stream = CohereReply(true, {PromptReady{20, 12}, delta}, CohereDone());
  EXPECT_THAT(stream, HasSubstr(R"("logprobs":{"text":"ab","token_ids":[5,6],"logprobs":[-0.5,-1.0]})"));
  const json whole = json::parse(CohereReply(false, {PromptReady{20, 12}, delta}, CohereDone()));
  EXPECT_EQ(whole["logprobs"].size(), 2U);
  EXPECT_EQ(whole["logprobs"][1], json::parse(R"({"text":"b","token_ids":[6],"logprobs":[-1.0]})"));
}

}  // namespace
}  // namespace quire::api::openai
