// Golden transcripts of the OpenAI dialect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/openai/chat.h"

namespace quire::api::openai {
namespace {

const std::chrono::system_clock::time_point kCreated{std::chrono::seconds(1785585600)};

ReplyHead Head(bool stream, bool include_usage = false) {
  return {"chatcmpl-1", "M", kCreated, stream, include_usage};
}

std::string ChunkOf(const std::string& rest) {
  return R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1785585600,"model":"M",)"
         R"("system_fingerprint":"fp_quire_)" QUIRE_VERSION R"(",)" +
         rest + "}\n\n";
}

Finished Done(FinishReason reason = FinishReason::kStop) {
  Finished finished;
  finished.reason = reason;
  finished.usage.prompt_tokens = 20;
  finished.usage.cached_tokens = 12;
  finished.usage.output_tokens = 3;
  return finished;
}

std::string Transcribe(ChatEncoder& encoder, const std::vector<Event>& events) {
  std::string out;
  for (const Event& event : events) out += encoder.OnEvent(event);
  return out;
}

const std::string kUsage =
    R"("usage":{"prompt_tokens":20,"completion_tokens":3,"total_tokens":23,"prompt_tokens_details":{"cached_tokens":12}})";
const std::vector<Event> kStory = {PromptReady{20, 12}, TextDelta{"H\"", {}, 1}, TextDelta{"", {}, 1},
                                   TextDelta{"i", {}, 1}, Done()};

TEST(OpenAiReply, Stream) {
  const std::string text =
      ChunkOf(
          R"("choices":[{"index":0,"delta":{"role":"assistant","content":"H\""},"logprobs":null,"finish_reason":null}])") +
      ChunkOf(R"("choices":[{"index":0,"delta":{"content":"i"},"logprobs":null,"finish_reason":null}])") +
      ChunkOf(R"("choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}])");
  ChatEncoder plain(Head(true));
  EXPECT_EQ(Transcribe(plain, kStory), text + "data: [DONE]\n\n");
  ChatEncoder counted(Head(true, true));
  EXPECT_EQ(Transcribe(counted, kStory), text + ChunkOf("\"choices\":[]," + kUsage) + "data: [DONE]\n\n");
}

TEST(OpenAiReply, AnEmptyAnswerStillHasARole) {
  ChatEncoder encoder(Head(true));
  EXPECT_EQ(
      Transcribe(encoder, {PromptReady{1, 0}, Done(FinishReason::kLength)}),
      ChunkOf(
          R"("choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}])") +
          ChunkOf(R"("choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}])") +
          "data: [DONE]\n\n");
}

TEST(OpenAiReply, Whole) {
  ChatEncoder encoder(Head(false, true));
  EXPECT_EQ(Transcribe(encoder, kStory),
            R"({"id":"chatcmpl-1","object":"chat.completion","created":1785585600,"model":"M",)"
            R"("system_fingerprint":"fp_quire_)" QUIRE_VERSION
            R"(","choices":[{"index":0,"message":{"role":"assistant","content":"H\"i"},"logprobs":null,)"
            R"("finish_reason":"stop"}],)" +
                kUsage + "}");
}

const std::vector<Event> kCalls = {
    PromptReady{20, 12},
    TextDelta{.text = "", .tokens = 1, .thinking = "hm"},
    TextDelta{.text = "Ok", .tokens = 1},
    TextDelta{.text = "", .tokens = 1, .tool_calls = {{"c1", "f", R"({"a":1})"}, {"c2", "g", "{}"}}},
    TextDelta{.text = "", .tokens = 1, .tool_calls = {{"c3", "f", "{}"}}},
    Done()};

TEST(OpenAiReply, CallsAreStreamedAsTheirNamesThenTheirArguments) {
  const auto chunk = [](const std::string& delta, const std::string& finish = "null") {
    return ChunkOf(R"("choices":[{"index":0,"delta":)" + delta + R"(,"logprobs":null,"finish_reason":)" +
                   finish + "}]");
  };
  const auto begin = [&](const std::string& index, const std::string& id, const std::string& name) {
    return chunk(R"({"tool_calls":[{"index":)" + index + R"(,"id":")" + id +
                 R"(","type":"function","function":{"name":")" + name + R"(","arguments":""}}]})");
  };
  const auto arguments = [&](const std::string& index, const std::string& text) {
    return chunk(R"({"tool_calls":[{"index":)" + index + R"(,"function":{"arguments":")" + text + R"("}}]})");
  };
  ChatEncoder encoder(Head(true));
  EXPECT_EQ(Transcribe(encoder, kCalls),
            chunk(R"({"role":"assistant","content":"","reasoning":"hm","reasoning_content":"hm"})") +
                chunk(R"({"content":"Ok"})") + begin("0", "c1", "f") + arguments("0", R"({\"a\":1})") +
                begin("1", "c2", "g") + arguments("1", "{}") + begin("2", "c3", "f") + arguments("2", "{}") +
                chunk("{}", R"("tool_calls")") + "data: [DONE]\n\n");
}

TEST(OpenAiReply, AWholeAnswerHoldsReasoningAndCalls) {
  ChatEncoder encoder(Head(false));
  const auto reply = nlohmann::json::parse(Transcribe(encoder, kCalls));
  const auto& choice = reply["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "Ok");
  EXPECT_EQ(choice["message"]["reasoning"], "hm");
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 3u);
  EXPECT_EQ(choice["message"]["tool_calls"][0].dump(),
            R"({"function":{"arguments":"{\"a\":1}","name":"f"},"id":"c1","index":0,"type":"function"})");
  EXPECT_EQ(choice["message"]["tool_calls"][2]["index"], 2);
}

TEST(OpenAiReply, Logprobs) {
  const TokenLogprob token{{"H", 3, -0.5F}, {{"H", 3, -0.5F}}};
  const std::string logprobs =
      R"("logprobs":{"content":[{"token":"H","logprob":-0.5,"bytes":[72],)"
      R"("top_logprobs":[{"token":"H","logprob":-0.5,"bytes":[72]}]}],"refusal":null})";
  ChatEncoder stream(Head(true));
  EXPECT_EQ(stream.OnEvent(TextDelta{"H", {token}, 1}),
            ChunkOf(R"("choices":[{"index":0,"delta":{"role":"assistant","content":"H"},)" + logprobs +
                    R"(,"finish_reason":null}])"));
  ChatEncoder whole(Head(false));
  EXPECT_THAT(Transcribe(whole, {TextDelta{"H", {token}, 1}, Done()}), testing::HasSubstr(logprobs));
}

TEST(OpenAiReply, DeltasJoinToTheWholeAnswer) {
  std::vector<Event> events;
  for (int i = 0; i < 50; ++i)
    events.emplace_back(TextDelta{std::string(static_cast<size_t>(i % 3), 'a'), {}, 1});
  events.emplace_back(Done());
  ChatEncoder whole(Head(false));
  const std::string content =
      nlohmann::json::parse(Transcribe(whole, events))["choices"][0]["message"]["content"];
  ChatEncoder stream(Head(true));
  const std::string sse = Transcribe(stream, events);
  std::string joined;
  size_t roles = 0;
  for (size_t at = 0; at < sse.size();) {
    const size_t end = sse.find("\n\n", at);
    const std::string data = sse.substr(at + 6, end - at - 6);
    at = end + 2;
    if (data == "[DONE]") break;
    const auto delta = nlohmann::json::parse(data)["choices"][0]["delta"];
    joined += delta.value("content", "");
    roles += delta.count("role");
  }
  EXPECT_EQ(joined, content);
  EXPECT_EQ(roles, 1U);
}

TEST(OpenAiReply, UsageDoesNotOverflow) {
  Finished finished = Done();
  finished.usage.prompt_tokens = finished.usage.output_tokens = 2147483647;
  ChatEncoder encoder(Head(false));
  EXPECT_EQ(nlohmann::json::parse(encoder.OnEvent(finished))["usage"]["total_tokens"], 4294967294);
}

TEST(OpenAiReply, AChunkForEveryTokenCountsThem) {
  ReplyHead head = Head(true);
  head.chunk_per_token = true;
  ChatEncoder encoder(head);
  encoder.OnEvent(PromptReady{20, 12});
  EXPECT_THAT(encoder.OnEvent(TextDelta{"", {}, 1}),
              testing::HasSubstr(R"("completion_tokens":1,"total_tokens":21)"));
  EXPECT_EQ(encoder.OnEvent(TextDelta{"", {}, 0}), "");
  EXPECT_THAT(encoder.OnEvent(Done()), testing::HasSubstr(R"("completion_tokens":3,"total_tokens":23)"));
}

TEST(OpenAiReply, Choices) {
  ReplyHead head = Head(false);
  head.choices = head.choices_per_prompt = 2;
  ChatEncoder encoder(head);
  encoder.OnEvent(TextDelta{"b", {}, 1}, {1});
  EXPECT_EQ(encoder.OnEvent(Done(), {1}), "");
  encoder.OnEvent(TextDelta{"a", {}, 1});
  const auto body = nlohmann::json::parse(encoder.OnEvent(Done(FinishReason::kLength)));
  EXPECT_EQ(body["choices"][0]["message"]["content"], "a");
  EXPECT_EQ(body["choices"][1]["message"]["content"], "b");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 20);
  EXPECT_EQ(body["usage"]["completion_tokens"], 6);
}

TEST(OpenAiReply, Errors) {
  EXPECT_EQ(
      ErrorBody({ErrorCode::kInvalidArgument, "bad", "messages[0].content"}),
      R"({"error":{"message":"bad","type":"invalid_request_error","param":"messages[0].content","code":null}})");
  EXPECT_EQ(
      ErrorBody({ErrorCode::kNotFound, "model \"x\" not found", ""}),
      R"({"error":{"message":"model \"x\" not found","type":"not_found_error","param":null,"code":"model_not_found"}})");
  EXPECT_EQ(
      ErrorBody({ErrorCode::kContextLengthExceeded, "9 > 4", ""}),
      R"({"error":{"message":"9 > 4","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}})");
  EXPECT_EQ(
      StreamError({ErrorCode::kOverloaded, "busy", ""}),
      "data: {\"error\":{\"message\":\"busy\",\"type\":\"api_error\",\"param\":null,\"code\":null}}\n\n");
  ChatEncoder encoder(Head(true));
  EXPECT_EQ(encoder.OnEvent(Failed{{ErrorCode::kRunnerDied, "died", ""}}),
            StreamError({ErrorCode::kRunnerDied, "died", ""}));
}

TEST(OpenAiLists, Models) {
  EXPECT_EQ(EncodeModels({}), R"({"object":"list","data":[]})");
  const std::string model = R"({"id":"a:latest","object":"model","created":1785585600,"owned_by":"library"})";
  EXPECT_EQ(EncodeModel({"a:latest", kCreated}), model);
  EXPECT_EQ(EncodeModels({{"a:latest", kCreated}, {"a:latest", kCreated}}),
            R"({"object":"list","data":[)" + model + "," + model + "]}");
}

}  // namespace
}  // namespace quire::api::openai
