// /v1/completions: what its bodies mean, and golden transcripts of its replies.
#include "api/openai/completions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/base/limits.h"

namespace quire::api::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string CompletionWith(const std::string& fields) { return R"({"model":"M",)" + fields + "}"; }

CompletionRequest ParsedCompletion(const std::string& fields) {
  auto parsed = ParseCompletion(CompletionWith(fields));
  EXPECT_TRUE(parsed) << fields << ": " << parsed.error().message;
  return parsed ? *std::move(parsed) : CompletionRequest();
}

// "text" or "[1,2]" of each.
std::vector<std::string> PromptsOf(const std::string& prompt) {
  std::vector<std::string> texts;
  for (const auto& one : ParsedCompletion("\"prompt\":" + prompt).prompts) {
    const auto* raw = std::get_if<RawPrompt>(&one);
    texts.push_back(raw != nullptr ? raw->text : nlohmann::json(std::get<TokenPrompt>(one).tokens).dump());
  }
  return texts;
}

TEST(CompletionParse, EveryFormOfAPrompt) {
  EXPECT_THAT(PromptsOf(R"("Once")"), ElementsAre("Once"));
  EXPECT_THAT(PromptsOf(R"(["Once","upon"])"), ElementsAre("Once", "upon"));
  EXPECT_THAT(PromptsOf("[1,2.0,3]"), ElementsAre("[1,2,3]"));
  EXPECT_THAT(PromptsOf("[[1],[2,3]]"), ElementsAre("[1]", "[2,3]"));
}

TEST(CompletionParse, WithASuffixPromptsAreWhatComesBefore) {
  const auto completion = ParsedCompletion(R"("prompt":["a","b"],"suffix":"z","echo":true)");
  EXPECT_THAT(EchoesOf(completion).texts, ElementsAre("a", "b"));
  const auto requests = ToRequests(completion, {});
  ASSERT_THAT(requests, SizeIs(2));
  EXPECT_EQ(std::get<FimPrompt>(requests[1].prompt).prefix, "b");
  EXPECT_EQ(std::get<FimPrompt>(requests[1].prompt).suffix, "z");
}

TEST(CompletionParse, AnyOtherPromptIsRefused) {
  for (const std::string prompt : {"null", "5", "{}", "true", "[]", R"(["a",1])", R"([1,"a"])", "[[1],2]",
                                   R"([[1],"a"])", "[[1.5]]", "[-1]", "[2147483648]", "[1e308]", "[null]"}) {
    const auto parsed = ParseCompletion(CompletionWith("\"prompt\":" + prompt));
    ASSERT_FALSE(parsed) << prompt;
    EXPECT_EQ(parsed.error().field, "prompt") << prompt;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument) << prompt;
  }
}

TEST(CompletionParse, FieldsReachTheRequests) {
  auto completion = ParsedCompletion(
      R"("prompt":["a","b"],"n":2,"max_tokens":5,"temperature":0.5,"top_p":0.25,"seed":7,"stop":["x"],"logprobs":0,)"
      R"("logit_bias":{"5":-100,"6":2.5},"presence_penalty":1,"cache_salt":"s","min_tokens":3,"ignore_eos":true,)"
      R"("best_of":2,"user":"u","options":{"frob":1})");
  EXPECT_THAT(completion.unknown_options, ElementsAre("frob"));
  const auto requests = ToRequests(completion, {});
  ASSERT_THAT(requests, SizeIs(4));
  EXPECT_EQ(std::get<RawPrompt>(requests[1].prompt).text, "a");
  EXPECT_EQ(std::get<RawPrompt>(requests[2].prompt).text, "b");
  // A prompt's choices draw from seeds of their own, the same ones whatever prompts come with it.
  EXPECT_EQ(requests[0].params.seed, 7);
  EXPECT_EQ(requests[1].params.seed, 8);
  EXPECT_EQ(requests[2].params.seed, 7);
  const Request& request = requests[3];
  EXPECT_EQ(request.params.num_predict, 5);
  EXPECT_EQ(request.params.temperature, 0.5F);
  EXPECT_THAT(request.params.stop, ElementsAre("x"));
  ASSERT_THAT(request.params.logit_bias, SizeIs(2));
  EXPECT_EQ(request.params.logit_bias[0].token, 5);
  EXPECT_EQ(request.params.logit_bias[1].bias, 2.5F);
  EXPECT_EQ(request.params.min_tokens, 3);
  EXPECT_TRUE(request.params.ignore_eos);
  EXPECT_TRUE(request.logprobs);
  EXPECT_EQ(request.top_logprobs, 0);
  EXPECT_EQ(request.overflow, Overflow::kRefuse);
  EXPECT_FALSE(request.shift);
  EXPECT_EQ(request.client.cache_salt, "s");
}

TEST(CompletionParse, DefaultsAreOpenAis) {
  const auto requests = ToRequests(ParsedCompletion(R"("prompt":"a")"), {});
  ASSERT_THAT(requests, SizeIs(1));
  EXPECT_EQ(requests[0].params.num_predict, 16);
  EXPECT_EQ(requests[0].params.temperature, 1.0F);
  EXPECT_FALSE(requests[0].logprobs);
  ModelDefaults defaults;
  defaults.options.num_predict = 3;
  EXPECT_EQ(ToRequests(ParsedCompletion(R"("prompt":"a")"), defaults)[0].params.num_predict, 3);
}

TEST(CompletionParse, WhatCannotBeDoneIsRefusedByName) {
  std::string many = "[\"a\"";
  for (int i = 0; i < 128; ++i) many += ",\"a\"";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("prompt":[1],"suffix":"b")", "suffix"},
      {R"("prompt":"a","best_of":2)", "best_of"},
      {R"("prompt":"a","suffix":"b","echo":true,"logprobs":1)", "echo"},
      {R"("prompt":"a","stream":true,"prompt_logprobs":1)", "prompt_logprobs"},
      {R"("prompt":"a","prompt_logprobs":-1)", "prompt_logprobs"},
      {R"("prompt":"a","prompt_logprobs":21)", "prompt_logprobs"},
      {R"("prompt":["a","b"],"n":65)", "n"},
      {R"("prompt":"a","n":0)", "n"},
      {R"("prompt":"a","logprobs":21)", "logprobs"},
      {R"("prompt":"a","logprobs":true)", "logprobs"},
      {"\"prompt\":" + many + "]", "prompt"},
      {R"("n":1)", "prompt"}};
  for (const auto& [fields, path] : cases) {
    const auto parsed = ParseCompletion(CompletionWith(fields));
    ASSERT_FALSE(parsed) << fields;
    EXPECT_EQ(parsed.error().field, path) << fields;
    EXPECT_EQ(HttpStatus(parsed.error().code), 400) << fields;
  }
}

TEST(CompletionParse, ChoicesOfALargeBodyAreBoundedTogether) {
  const std::string text(size_t{9} << 20, 'x');
  const auto parsed = ParseCompletion(CompletionWith(R"("n":8,"prompt":")" + text + "\""));
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(parsed.error().field, "n");
  EXPECT_TRUE(ParseCompletion(CompletionWith(R"("n":7,"prompt":")" + text + "\"")));
}

TEST(CompletionParse, CopiesOfTheSuffixAndTheFormatAreBounded) {
  const std::vector<std::string> prompts(128, "x");
  constexpr size_t kFits = kBodyBytesMax / 128;
  const auto parsed = [&prompts](const char* name, size_t bytes) {
    nlohmann::json body = {{"model", "M"}, {"prompt", prompts}};
    body[name] = std::string(bytes, 'x');
    return ParseCompletion(body.dump());
  };
  for (const char* name : {"suffix", "guided_regex"}) {
    EXPECT_TRUE(parsed(name, kFits)) << name;
    const auto refused = parsed(name, kFits + 1);
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().code, ErrorCode::kTooLarge);
    EXPECT_EQ(refused.error().field, name);
  }
}

// ---- replies ----

const std::chrono::system_clock::time_point kCompletionCreated{std::chrono::seconds(1785585600)};

ReplyHead HeadOf(bool stream, size_t choices = 1, size_t per_prompt = 1) {
  return {"cmpl-1", "M", kCompletionCreated, stream, true, false, choices, per_prompt};
}

Finished CompletionDone(int32_t prompt, int32_t output, FinishReason reason = FinishReason::kStop) {
  Finished finished{.reason = reason, .stop_string = {}, .usage = {}};
  finished.usage.prompt_tokens = prompt;
  finished.usage.cached_tokens = prompt / 2;
  finished.usage.output_tokens = output;
  return finished;
}

std::string ObjectOf(const std::string& rest) {
  return R"({"id":"cmpl-1","object":"text_completion","created":1785585600,"model":"M",)"
         R"("system_fingerprint":"fp_quire_)" QUIRE_VERSION R"(",)" +
         rest + "}";
}
std::string CompletionChunkOf(const std::string& rest) { return "data: " + ObjectOf(rest) + "\n\n"; }

std::string ChoiceOf(int index, const std::string& text, const std::string& finish) {
  return R"({"text":")" + text + R"(","index":)" + std::to_string(index) +
         R"(,"logprobs":null,"finish_reason":)" + finish + "}";
}

TEST(CompletionReply, Stream) {
  CompletionEncoder encoder(HeadOf(true), {});
  EXPECT_EQ(encoder.OnEvent(PromptReady{4, 2}), "");
  EXPECT_EQ(encoder.OnEvent(TextDelta{"H\"", {}, 1}),
            CompletionChunkOf(R"("choices":[)" + ChoiceOf(0, "H\\\"", "null") + "]"));
  EXPECT_EQ(encoder.OnEvent(TextDelta{"", {}, 1}), "");
  EXPECT_EQ(
      encoder.OnEvent(CompletionDone(4, 2, FinishReason::kLength)),
      CompletionChunkOf(R"("choices":[)" + ChoiceOf(0, "", "\"length\"") + "]") +
          CompletionChunkOf(
              R"("choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6,"prompt_tokens_details":{"cached_tokens":2}})") +
          "data: [DONE]\n\n");
}

TEST(CompletionReply, ChoicesInTheirOrderWhateverEndsFirst) {
  CompletionEncoder encoder(HeadOf(false, 4, 2), {});
  for (const size_t choice : {3U, 1U, 0U}) {
    EXPECT_EQ(encoder.OnEvent(TextDelta{std::string(1, static_cast<char>('a' + choice)), {}, 1}, {choice}),
              "");
    EXPECT_EQ(encoder.OnEvent(CompletionDone(10 + static_cast<int32_t>(choice), 1), {choice}), "");
  }
  EXPECT_EQ(encoder.OnEvent(CompletionDone(12, 5, FinishReason::kLength), {2}),
            ObjectOf(R"("choices":[)" + ChoiceOf(0, "a", "\"stop\"") + "," + ChoiceOf(1, "b", "\"stop\"") +
                     "," + ChoiceOf(2, "", "\"length\"") + "," + ChoiceOf(3, "d", "\"stop\"") +
                     R"(],"usage":{"prompt_tokens":22,"completion_tokens":8,"total_tokens":30,)"
                     R"("prompt_tokens_details":{"cached_tokens":11}})"));
}

TEST(CompletionReply, StreamedChoicesEndOnce) {
  CompletionEncoder encoder(HeadOf(true, 2, 2), {});
  EXPECT_THAT(encoder.OnEvent(TextDelta{"x", {}, 1}, {1}), HasSubstr(R"("index":1)"));
  EXPECT_THAT(encoder.OnEvent(CompletionDone(4, 1), {1}), ::testing::Not(HasSubstr("[DONE]")));
  EXPECT_THAT(encoder.OnEvent(CompletionDone(4, 2)), HasSubstr("[DONE]"));
}

TEST(CompletionReply, AChunkForEveryTokenCountsThem) {
  EXPECT_TRUE(
      ToRequests(
          ParsedCompletion(R"("prompt":"a","stream":true,"stream_options":{"continuous_usage_stats":true})"),
          {})[0]
          .delta_per_token);
  ReplyHead head = HeadOf(true);
  head.chunk_per_token = true;
  CompletionEncoder encoder(head, {});
  encoder.OnEvent(PromptReady{4, 2});
  EXPECT_THAT(encoder.OnEvent(TextDelta{"", {}, 1}), HasSubstr(R"("completion_tokens":1)"));
  EXPECT_THAT(encoder.OnEvent(TextDelta{"x", {}, 1}), HasSubstr(R"("completion_tokens":2)"));
}

TEST(CompletionReply, EchoComesFirst) {
  const Echoes echoes{{"Once"}};
  CompletionEncoder stream(HeadOf(true), echoes);
  EXPECT_THAT(stream.OnEvent(TextDelta{" upon", {}, 1}), HasSubstr(R"("text":"Once upon")"));
  CompletionEncoder empty(HeadOf(true), echoes);
  EXPECT_THAT(empty.OnEvent(CompletionDone(1, 0)), HasSubstr(R"("text":"Once")"));
  CompletionEncoder whole(HeadOf(false), echoes);
  whole.OnEvent(TextDelta{" upon", {}, 1});
  EXPECT_THAT(whole.OnEvent(CompletionDone(1, 1)), HasSubstr(R"("text":"Once upon")"));
}

TEST(CompletionParse, WhatIsToldOfThePrompt) {
  const auto request = [](const std::string& fields) { return ToRequests(ParsedCompletion(fields), {})[0]; };
  EXPECT_EQ(request(R"("prompt":"a","logprobs":3)").prompt_logprobs, -1);
  EXPECT_EQ(request(R"("prompt":"a","logprobs":3,"echo":true)").prompt_logprobs, 3);
  EXPECT_EQ(request(R"("prompt":[1],"logprobs":0,"echo":true)").prompt_logprobs, 0);
  EXPECT_EQ(request(R"("prompt":"a","logprobs":3,"echo":true,"prompt_logprobs":5)").prompt_logprobs, 5);
  EXPECT_EQ(request(R"("prompt":"a","prompt_logprobs":0)").prompt_logprobs, 0);
  EXPECT_FALSE(request(R"("prompt":"a","echo":true)").return_prompt_tokens) << "the text is known";
  EXPECT_TRUE(request(R"("prompt":[1],"echo":true)").return_prompt_tokens);
  EXPECT_EQ(request(R"("prompt":[1],"echo":true)").prompt_logprobs, -1);
  EXPECT_EQ(request(R"("prompt":"a","echo":true,"max_tokens":0)").params.num_predict, 0);
}

// BOS, " Hé" as a tokenizer that puts a space before a text has it, and the two bytes of a character.
TextDelta PromptOf() {
  TextDelta delta;
  delta.prompt = {{{"<s>", 1, 0}, {}, 0},
                  {{" H", 7, -1}, {{"x", 9, -0.5F}, {" H", 7, -1}}, 2},
                  {{"\xC3", 5, -2}, {{"\xC3", 5, -2}, {"y", 2, -3}}, 1},
                  {{"\xA9", 6, -3}, {{"z", 4, -0.25F}, {"y", 2, -3}}, 8}};
  return delta;
}
const TextDelta kCompleted{"!", {{{"!", 3, -0.75F}, {{"!", 3, -0.75F}}, 1}}, 1};
constexpr const char* kPromptLists =
    R"({"text_offset":[0,0,1,2,2],"token_logprobs":[null,-1.0,-2.0,-3.0,-0.75],)"
    R"("tokens":["<s>"," H","\uFFFD","\uFFFD","!"],)"
    R"("top_logprobs":[null,{"x":-0.5},{"\uFFFD":-2.0},{"z":-0.25},{"!":-0.75}]})";

TEST(CompletionReply, EchoedLogprobsBeginWithThePrompts) {
  CompletionEncoder encoder(HeadOf(false), {{"H\xC3\xA9"}, 1});
  encoder.OnEvent(PromptOf());
  encoder.OnEvent(kCompleted);
  const auto body = nlohmann::json::parse(encoder.OnEvent(CompletionDone(4, 1)));
  EXPECT_EQ(body["choices"][0]["text"], "H\xC3\xA9!");
  EXPECT_EQ(body["choices"][0]["logprobs"], nlohmann::json::parse(kPromptLists));
  EXPECT_FALSE(body["choices"][0].contains("prompt_logprobs"));
}

TEST(CompletionReply, EchoOfTokensIsTheirText) {
  CompletionEncoder encoder(HeadOf(false), {{std::nullopt}, 1});
  encoder.OnEvent(PromptOf());
  encoder.OnEvent(kCompleted);
  const auto body = nlohmann::json::parse(encoder.OnEvent(CompletionDone(4, 1)));
  EXPECT_EQ(body["choices"][0]["text"], "<s> H\xC3\xA9!");
  EXPECT_EQ(body["choices"][0]["logprobs"]["text_offset"].dump(), "[0,3,5,6,6]");
}

TEST(CompletionReply, AStreamTellsThePromptFirst) {
  for (const bool tokens : {false, true}) {
    const std::optional<std::string> echo = tokens ? std::nullopt : std::optional("H\xC3\xA9");
    CompletionEncoder encoder(HeadOf(true), {{echo}, 1});
    std::string text;
    nlohmann::json offsets = nlohmann::json::array();
    // Each token in a delta of its own, then the answer, then the end.
    std::vector<Event> events;
    for (const TokenLogprob& token : PromptOf().prompt) {
      TextDelta delta;
      delta.prompt = {token};
      events.emplace_back(delta);
    }
    events.emplace_back(kCompleted);
    for (const Event& event : events) {
      const std::string chunk = encoder.OnEvent(event);
      const auto choice = nlohmann::json::parse(chunk.substr(chunk.find('{')))["choices"][0];
      text += choice["text"].get<std::string>();
      for (const auto& offset : choice["logprobs"]["text_offset"]) offsets.push_back(offset);
    }
    EXPECT_EQ(text, tokens ? "<s> H\xC3\xA9!" : "H\xC3\xA9!");
    EXPECT_EQ(offsets.dump(), tokens ? "[0,3,5,6,6]" : "[0,0,1,2,2]");
    EXPECT_THAT(encoder.OnEvent(CompletionDone(4, 1)), HasSubstr(R"("text":"")"));
  }
}

TEST(CompletionReply, PromptLogprobsAsVllmHasThem) {
  ReplyHead head = HeadOf(false);
  head.prompt_logprobs = 1;
  CompletionEncoder encoder(head, {});
  encoder.OnEvent(PromptOf());
  const auto choice = nlohmann::json::parse(encoder.OnEvent(CompletionDone(4, 0)))["choices"][0];
  EXPECT_EQ(choice["text"], "");
  EXPECT_EQ(choice["logprobs"], nullptr);
  EXPECT_EQ(choice["prompt_logprobs"], nlohmann::json::parse(R"([null,
    {"7":{"logprob":-1.0,"rank":2,"decoded_token":" H"},"9":{"logprob":-0.5,"rank":1,"decoded_token":"x"}},
    {"5":{"logprob":-2.0,"rank":1,"decoded_token":"\uFFFD"}},
    {"6":{"logprob":-3.0,"rank":8,"decoded_token":"\uFFFD"},"4":{"logprob":-0.25,"rank":1,"decoded_token":"z"}}])"));
}

TEST(CompletionReply, LogprobsAreListsWithOffsetsInCharacters) {
  const std::vector<TokenLogprob> logprobs = {
      {{"h\xC3\xA9", 3, -0.5F}, {{"h\xC3\xA9", 3, -0.5F}, {"a", 1, -1}}}, {{"y", 4, -INFINITY}, {}}};
  CompletionEncoder encoder(HeadOf(false), {});
  encoder.OnEvent(TextDelta{"h\xC3\xA9y", logprobs, 2});
  const auto body = nlohmann::json::parse(encoder.OnEvent(CompletionDone(1, 2)));
  EXPECT_EQ(body["choices"][0]["logprobs"].dump(),
            R"({"text_offset":[0,2],"token_logprobs":[-0.5,-9999.0],"tokens":["hé","y"],)"
            R"("top_logprobs":[{"a":-1.0,"hé":-0.5},{}]})");
}

}  // namespace
}  // namespace quire::api::openai
