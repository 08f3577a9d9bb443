// Golden transcripts of the Anthropic dialect.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api/anthropic/messages.h"

namespace quire::api::anthropic {
namespace {

Finished Done(FinishReason reason = FinishReason::kStop, std::string stop_string = "") {
  Finished finished{.reason = reason, .stop_string = std::move(stop_string), .usage = {}};
  finished.usage.prompt_tokens = 20;
  finished.usage.cached_tokens = 12;
  finished.usage.output_tokens = 3;
  return finished;
}

std::string Transcribe(bool stream, const std::vector<Event>& events) {
  MessagesEncoder encoder({"msg_1", "M", stream});
  std::string out;
  for (const Event& event : events) out += encoder.OnEvent(event);
  return out;
}

std::string EventOf(const std::string& type, const std::string& rest) {
  return "event: " + type + "\ndata: {\"type\":\"" + type + "\"" + rest + "}\n\n";
}

std::string UsageOf(int output_tokens) {
  return R"("usage":{"input_tokens":8,"cache_creation_input_tokens":0,"cache_read_input_tokens":12,"output_tokens":)" +
         std::to_string(output_tokens) + "}";
}

const std::string kStart =
    EventOf("message_start",
            R"(,"message":{"id":"msg_1","type":"message","role":"assistant","model":"M","content":[],)"
            R"("stop_reason":null,"stop_sequence":null,)" +
                UsageOf(0) + "}");

std::string EndOf(const std::string& reason, const std::string& sequence) {
  return EventOf("message_delta", R"(,"delta":{"stop_reason":")" + reason + R"(","stop_sequence":)" +
                                      sequence + "}," + UsageOf(3)) +
         EventOf("message_stop", "");
}

const std::vector<Event> kStory = {PromptReady{20, 12}, TextDelta{"H\"", {}, 1}, TextDelta{"", {}, 1},
                                   TextDelta{"i", {}, 1}, Done()};

TEST(AnthropicReply, Stream) {
  EXPECT_EQ(Transcribe(true, kStory),
            kStart +
                EventOf("content_block_start", R"(,"index":0,"content_block":{"type":"text","text":""})") +
                EventOf("content_block_delta", R"(,"index":0,"delta":{"type":"text_delta","text":"H\""})") +
                EventOf("content_block_delta", R"(,"index":0,"delta":{"type":"text_delta","text":"i"})") +
                EventOf("content_block_stop", R"(,"index":0)") + EndOf("end_turn", "null"));
}

TEST(AnthropicReply, AnEmptyAnswerHasNoBlock) {
  EXPECT_EQ(Transcribe(true, {PromptReady{20, 12}, Done(FinishReason::kLength)}),
            kStart + EndOf("max_tokens", "null"));
  EXPECT_EQ(Transcribe(false, {PromptReady{20, 12}, Done()}),
            R"({"id":"msg_1","type":"message","role":"assistant","model":"M","content":[],)"
            R"("stop_reason":"end_turn","stop_sequence":null,)" +
                UsageOf(3) + "}");
}

const std::vector<Event> kCalls = {
    PromptReady{20, 12}, TextDelta{.text = "", .tokens = 1, .thinking = "h"},
    TextDelta{.text = "Ok", .tokens = 1, .thinking = "m", .tool_calls = {{"c1", "f", R"({"a":1})"}}},
    TextDelta{.text = "", .tokens = 1, .tool_calls = {{"c2", "g", "{}"}}}, Done()};

TEST(AnthropicReply, ThinkingAndCallsAreBlocksOfTheirOwn) {
  const auto start = [](int index, const std::string& block) {
    return EventOf("content_block_start",
                   ",\"index\":" + std::to_string(index) + ",\"content_block\":{" + block + "}");
  };
  const auto delta = [](int index, const std::string& piece) {
    return EventOf("content_block_delta",
                   ",\"index\":" + std::to_string(index) + ",\"delta\":{" + piece + "}");
  };
  const auto stop = [](int index) {
    return EventOf("content_block_stop", ",\"index\":" + std::to_string(index));
  };
  EXPECT_EQ(Transcribe(true, kCalls),
            kStart + start(0, R"("type":"thinking","thinking":"")") +
                delta(0, R"("type":"thinking_delta","thinking":"h")") +
                delta(0, R"("type":"thinking_delta","thinking":"m")") +
                delta(0, R"("type":"signature_delta","signature":"")") + stop(0) +
                start(1, R"("type":"text","text":"")") + delta(1, R"("type":"text_delta","text":"Ok")") +
                stop(1) + start(2, R"("type":"tool_use","id":"c1","name":"f","input":{})") +
                delta(2, R"("type":"input_json_delta","partial_json":"{\"a\":1}")") + stop(2) +
                start(3, R"("type":"tool_use","id":"c2","name":"g","input":{})") +
                delta(3, R"("type":"input_json_delta","partial_json":"{}")") + stop(3) +
                EndOf("tool_use", "null"));
  EXPECT_EQ(
      Transcribe(false, kCalls),
      R"({"id":"msg_1","type":"message","role":"assistant","model":"M","content":[)"
      R"({"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"Ok"},)"
      R"({"type":"tool_use","id":"c1","name":"f","input":{"a":1}},)"
      R"({"type":"tool_use","id":"c2","name":"g","input":{}}],"stop_reason":"tool_use","stop_sequence":null,)" +
          UsageOf(3) + "}");
}

TEST(AnthropicReply, Whole) {
  EXPECT_EQ(
      Transcribe(false, kStory),
      R"({"id":"msg_1","type":"message","role":"assistant","model":"M","content":[{"type":"text","text":"H\"i"}],)"
      R"("stop_reason":"end_turn","stop_sequence":null,)" +
          UsageOf(3) + "}");
}

TEST(AnthropicReply, AStopSequenceIsNamed) {
  EXPECT_EQ(Transcribe(true, {PromptReady{20, 12}, Done(FinishReason::kStop, "EN\"D")}),
            kStart + EndOf("stop_sequence", R"("EN\"D")"));
}

TEST(AnthropicReply, Errors) {
  EXPECT_EQ(
      ErrorBody({ErrorCode::kInvalidArgument, "bad", "x"}, "req_1"),
      R"({"type":"error","error":{"type":"invalid_request_error","message":"bad"},"request_id":"req_1"})");
  EXPECT_EQ(ErrorBody({ErrorCode::kUnsupported, "no", "thread"}, "req_1"),
            R"({"type":"error","error":{"type":"invalid_request_error","message":"no",)"
            R"("details":{"error_code":"thread_unsupported_request"}},"request_id":"req_1"})");
  const auto type_of = [](ErrorCode code) {
    const std::string body = ErrorBody({code, "", ""});
    const size_t begin = body.find(R"("type":")", 16) + 8;
    return body.substr(begin, body.find('"', begin) - begin);
  };
  EXPECT_EQ(type_of(ErrorCode::kContextLengthExceeded), "invalid_request_error");
  const Error too_long{.code = ErrorCode::kContextLengthExceeded,
                       .message = "request (9 tokens) ...",
                       .tokens = 9,
                       .tokens_max = 4};
  EXPECT_NE(ErrorBody(too_long).find(R"("message":"prompt is too long: 9 tokens > 4 maximum")"),
            std::string::npos);
  EXPECT_EQ(type_of(ErrorCode::kForbidden), "permission_error");
  EXPECT_EQ(type_of(ErrorCode::kNotFound), "not_found_error");
  EXPECT_EQ(type_of(ErrorCode::kTooLarge), "request_too_large");
  EXPECT_EQ(type_of(ErrorCode::kOverloaded), "overloaded_error");
  EXPECT_EQ(type_of(ErrorCode::kRunnerDied), "api_error");
  EXPECT_EQ(Transcribe(true, {Failed{{ErrorCode::kRunnerDied, "died", ""}}}),
            EventOf("error", R"(,"error":{"type":"api_error","message":"died"})"));
}

TEST(AnthropicReply, TokenCount) {
  TokenCountEncoder encoder;
  EXPECT_FALSE(encoder.streams());
  EXPECT_EQ(encoder.OnEvent(PromptReady{20, 12}), "");
  EXPECT_EQ(encoder.OnEvent(Done()), R"({"input_tokens":20})");
}

}  // namespace
}  // namespace quire::api::anthropic
