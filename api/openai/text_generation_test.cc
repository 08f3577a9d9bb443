// POST / of Hugging Face's client: what its bodies mean, and its replies.
#include "api/openai/text_generation.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace quire::api::openai {
namespace {

using json = nlohmann::json;

TextDelta TokenDelta(TokenId id, const std::string& text) {
  TextDelta delta;
  delta.text = text;
  delta.tokens = 1;
  delta.logprobs.emplace_back().chosen = {.bytes = text, .id = id, .logprob = -0.5F};
  return delta;
}

TextGenerationRequest TextRequestOf(const std::string& body) {
  auto parsed = ParseTextGeneration(body);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return parsed ? *std::move(parsed) : TextGenerationRequest();
}

TEST(TextGeneration, HasMembersOfItsOwn) {
  EXPECT_TRUE(IsTextGeneration(R"({"inputs":"a","parameters":{}})"));
  EXPECT_TRUE(IsTextGeneration(R"( {"stream" : false, "inputs": "a"})"));
  for (const char* body : {R"({"inputs":"a"})", R"({"inputs":"\"parameters\":","normalize":true})",
                           R"({"inputs":["stream","parameters"]})", R"({"a":{"stream":1}})", R"(["stream"])",
                           R"({"inputs":"stream","x":"parameters"})", R"("stream)", "{\"", "", "]]}"}) {
    EXPECT_FALSE(IsTextGeneration(body)) << body;
  }
}

TEST(TextGeneration, IsGreedyUnlessItSaysOtherwise) {
  const TextGenerationRequest greedy = TextRequestOf(R"({"inputs":"a","parameters":{}})");
  EXPECT_EQ(greedy.options.temperature, 0.0F);
  EXPECT_EQ(greedy.options.num_predict, 100);
  EXPECT_FALSE(greedy.logprobs);
  EXPECT_FALSE(TextRequestOf(R"({"inputs":"a","parameters":{"do_sample":true}})").options.temperature);
  EXPECT_FALSE(TextRequestOf(R"({"inputs":"a","parameters":{"top_p":0.5}})").options.temperature);
  const TextGenerationRequest more = TextRequestOf(
      R"({"inputs":"a","stream":true,"parameters":{"max_new_tokens":3,"stop":["x"],"repetition_penalty":1.5,)"
      R"("return_full_text":true,"details":true,"watermark":false,"best_of":1,"truncate":null,"more":1,)"
      R"("grammar":{"type":"regex","value":"[a-c]"}}})");
  EXPECT_EQ(more.options.num_predict, 3);
  EXPECT_EQ(more.options.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(more.options.repeat_penalty, 1.5F);
  EXPECT_EQ(more.prefix, "a");
  EXPECT_EQ(more.format->text, "[a-c]");
  EXPECT_EQ(more.unknown_options, std::vector<std::string>{"more"});
  EXPECT_TRUE(more.chunk_per_token);
}

TEST(TextGeneration, ErrorsNameTheField) {
  for (const auto& [body, field] : std::vector<std::pair<std::string, std::string>>{
           {R"({"parameters":{}})", "inputs"},
           {R"({"inputs":["a"],"parameters":{}})", "inputs"},
           {R"({"inputs":"a","parameters":1})", "parameters"},
           {R"({"inputs":"a","parameters":{"max_new_tokens":0}})", "max_new_tokens"},
           {R"({"inputs":"a","parameters":{"truncate":5}})", "truncate"},
           {R"({"inputs":"a","parameters":{"best_of":2}})", "best_of"},
           {R"({"inputs":"a","parameters":{"grammar":{"type":"regex"}}})", "grammar"}}) {
    const auto parsed = ParseTextGeneration(body);
    ASSERT_FALSE(parsed) << body;
    EXPECT_NE(parsed.error().message.find(field), std::string::npos) << parsed.error().message;
  }
}

TEST(TextGeneration, RepliesAreWholeOrTokenByToken) {
  const std::string parameters = R"("parameters":{"details":true,"return_full_text":true}})";
  Finished finished;
  finished.reason = FinishReason::kLength;
  finished.usage.output_tokens = 2;
  TextGenerationEncoder whole(TextRequestOf(R"({"inputs":"P",)" + parameters));
  EXPECT_EQ(whole.OnEvent(TokenDelta(7, "a")), "");
  EXPECT_EQ(whole.OnEvent(TokenDelta(8, "b")), "");
  const json body = json::parse(whole.OnEvent(finished));
  EXPECT_EQ(body[0]["generated_text"], "Pab");
  EXPECT_EQ(body[0]["details"]["finish_reason"], "length");
  EXPECT_EQ(body[0]["details"]["tokens"][1],
            json::parse(R"({"id":8,"text":"b","logprob":-0.5,"special":false})"));
  TextGenerationEncoder streamed(TextRequestOf(R"({"inputs":"P","stream":true,)" + parameters));
  EXPECT_EQ(streamed.OnEvent(TokenDelta(7, "a")), "");
  EXPECT_EQ(streamed.OnEvent(TokenDelta(8, "b")),
            "data: {\"index\":1,\"token\":{\"id\":7,\"text\":\"a\",\"logprob\":-0.5,\"special\":false},"
            "\"generated_text\":null,\"details\":null}\n\n");
  const json last = json::parse(streamed.OnEvent(finished).substr(6));
  EXPECT_EQ(last["token"]["text"], "b");
  EXPECT_EQ(last["generated_text"], "Pab");
  EXPECT_EQ(last["details"]["generated_tokens"], 2);
  TextGenerationEncoder empty(TextRequestOf(R"({"inputs":"P","stream":true})"));
  finished.reason = FinishReason::kStop;
  const json only = json::parse(empty.OnEvent(finished).substr(6));
  EXPECT_EQ(only["token"]["special"], true);
  EXPECT_EQ(only["generated_text"], "");
  EXPECT_EQ(only["details"]["finish_reason"], "eos_token");
}

}  // namespace
}  // namespace quire::api::openai
