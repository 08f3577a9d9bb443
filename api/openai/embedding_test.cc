#include "api/openai/embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/base/limits.h"

namespace quire::api {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;

EmbedRequest Parsed(EmbedDialect dialect, const std::string& body) {
  auto request = ParseEmbed(dialect, body);
  EXPECT_TRUE(request) << request.error().message << " " << body;
  return request.value_or(EmbedRequest{});
}

void ExpectRefused(EmbedDialect dialect, const std::string& body, const std::string& field) {
  const auto request = ParseEmbed(dialect, body);
  ASSERT_FALSE(request) << body;
  EXPECT_EQ(HttpStatus(request.error().code), 400) << body;
  EXPECT_EQ(request.error().field, field) << request.error().message;
}

std::vector<std::string> Texts(const EmbedRequest& request) {
  std::vector<std::string> texts;
  for (const EmbedPrompt& prompt : request.inputs) texts.push_back(prompt.text);
  return texts;
}

TEST(ParseEmbed, OllamaTakesATextOrSeveral) {
  const auto one = Parsed(EmbedDialect::kOllama, R"({"model":"m","input":"a"})");
  EXPECT_EQ(Texts(one), std::vector<std::string>{"a"});
  EXPECT_EQ(one.overflow, Overflow::kTruncate);
  EXPECT_TRUE(one.inputs[0].normalize);
  EXPECT_EQ(one.NameOf(0), "input");

  const auto two = Parsed(EmbedDialect::kOllama,
                          R"({"model":"m","input":["a",""],"truncate":false,"dimensions":4,"keep_alive":"5s",
                              "options":{"num_ctx":64},"cache_salt":"s"})");
  EXPECT_EQ(Texts(two), (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(two.NameOf(1), "input[1]");
  EXPECT_EQ(two.keep_alive, 5s);
  const Request request = two.At(1, Options{});
  EXPECT_EQ(request.overflow, Overflow::kRefuse);
  EXPECT_EQ(request.params.num_ctx, 64);
  EXPECT_EQ(request.client.cache_salt, "s");
  EXPECT_EQ(std::get<EmbedPrompt>(request.prompt).dimensions, 4);
}

TEST(ParseEmbed, OllamaWithoutATextOnlyLoads) {
  for (const char* body : {R"({"model":"m"})", R"({"model":"m","input":""})", R"({"model":"m","input":[]})",
                           R"({"model":"m","input":null})"}) {
    EXPECT_TRUE(Parsed(EmbedDialect::kOllama, body).inputs.empty()) << body;
  }
  EXPECT_TRUE(Parsed(EmbedDialect::kOllamaLegacy, R"({"model":"m","prompt":""})").inputs.empty());
}

TEST(ParseEmbed, LegacyTakesAPromptAndDoesNotNormalize) {
  const auto request = Parsed(EmbedDialect::kOllamaLegacy, R"({"model":"m","prompt":"a"})");
  EXPECT_EQ(Texts(request), std::vector<std::string>{"a"});
  EXPECT_FALSE(request.inputs[0].normalize);
  EXPECT_EQ(request.NameOf(0), "prompt");
}

TEST(ParseEmbed, OpenAiTakesTextsAndTokens) {
  const auto tokens = Parsed(EmbedDialect::kOpenAi, R"({"model":"m","input":[1,2,3]})");
  ASSERT_EQ(tokens.inputs.size(), 1U);
  EXPECT_EQ(tokens.inputs[0].tokens, (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(tokens.overflow, Overflow::kRefuse);
  const auto lists = Parsed(EmbedDialect::kOpenAi,
                            R"({"model":"m","input":[[1],[2,3]],"encoding_format":"base64","dimensions":2})");
  ASSERT_EQ(lists.inputs.size(), 2U);
  EXPECT_EQ(lists.inputs[1].tokens, (std::vector<TokenId>{2, 3}));
  EXPECT_EQ(lists.inputs[1].dimensions, 2);
  EXPECT_TRUE(lists.base64);
  EXPECT_EQ(Texts(Parsed(EmbedDialect::kOpenAi, R"({"model":"m","input":["a","b"]})")).size(), 2U);
}

TEST(ParseEmbed, WhatIsNotAnInputIsRefusedByName) {
  for (const char* input : {"7", "true", "{}", "[1]", "[\"a\",1]", "[null]", "[[\"a\"]]"}) {
    ExpectRefused(EmbedDialect::kOllama, std::string(R"({"model":"m","input":)") + input + "}", "input");
  }
  for (const char* input : {"7", "[]", "\"\"", "[-1]", "[1.5]", "[\"a\",1]", "[[]]", "[[1],\"a\",true]",
                            "[4294967296]", "null"}) {
    ExpectRefused(EmbedDialect::kOpenAi, std::string(R"({"model":"m","input":)") + input + "}", "input");
  }
  ExpectRefused(EmbedDialect::kOpenAi, R"({"model":"m"})", "input");
  ExpectRefused(EmbedDialect::kOllama, R"({"input":"a"})", "model");
  ExpectRefused(EmbedDialect::kOllama, R"({"model":"m","input":"a","dimensions":-1})", "dimensions");
  ExpectRefused(EmbedDialect::kOpenAi, R"({"model":"m","input":"a","dimensions":0})", "dimensions");
  ExpectRefused(EmbedDialect::kOpenAi, R"({"model":"m","input":"a","encoding_format":"hex"})",
                "encoding_format");
  ExpectRefused(EmbedDialect::kOllama, R"({"model":"m","input":"a","truncate":"no"})", "truncate");
  ExpectRefused(EmbedDialect::kOllamaLegacy, R"({"model":"m","prompt":["a"]})", "prompt");
  const json many = {{"model", "m"}, {"input", std::vector<std::string>(kEmbedInputsMax + 1, "a")}};
  ExpectRefused(EmbedDialect::kOllama, many.dump(), "input");
}

TEST(EncodeEmbed, EachDialectHasItsShape) {
  const EmbedResult result{
      .vectors = {{1, -0.5F, 1e-9F}, {0.1F, 0, 3}}, .prompt_tokens = 7, .total = 5ms, .load = 0ns};
  const auto ollama_reply = json::parse(
      EncodeEmbed(Parsed(EmbedDialect::kOllama, R"({"model":"a\"b","input":["x","y"]})"), result));
  EXPECT_EQ(ollama_reply["model"], "a\"b");
  EXPECT_EQ(ollama_reply["embeddings"].get<std::vector<std::vector<float>>>(), result.vectors);
  EXPECT_EQ(ollama_reply["total_duration"], 5'000'000);
  EXPECT_EQ(ollama_reply["load_duration"], 1);
  EXPECT_EQ(ollama_reply["prompt_eval_count"], 7);

  const auto openai =
      json::parse(EncodeEmbed(Parsed(EmbedDialect::kOpenAi, R"({"model":"m","input":["x","y"]})"), result));
  EXPECT_EQ(openai["object"], "list");
  EXPECT_EQ(openai["data"][1]["index"], 1);
  EXPECT_EQ(openai["data"][1]["object"], "embedding");
  EXPECT_EQ(openai["data"][1]["embedding"].get<std::vector<float>>(), result.vectors[1]);
  EXPECT_EQ(openai["usage"], (json{{"prompt_tokens", 7}, {"total_tokens", 7}}));

  const auto legacy = Parsed(EmbedDialect::kOllamaLegacy, R"({"model":"m","prompt":"x"})");
  EXPECT_EQ(EncodeEmbed(legacy, {.vectors = {{1, 2}}}), R"({"embedding":[1,2]})");
  EXPECT_EQ(EncodeEmbed(legacy, {}), R"({"embedding":[]})");
}

TEST(EncodeEmbed, Base64OfLittleEndianFloats) {
  const auto encoded = [](std::vector<float> vector) {
    EmbedRequest request;
    request.dialect = EmbedDialect::kOpenAi;
    request.base64 = true;
    const auto reply = json::parse(EncodeEmbed(request, {.vectors = {std::move(vector)}}));
    return reply["data"][0]["embedding"].get<std::string>();
  };
  EXPECT_EQ(encoded({1}), "AACAPw==");
  EXPECT_EQ(encoded({1, -2}), "AACAPwAAAMA=");
  EXPECT_EQ(encoded({1, -2, 0.5F}), "AACAPwAAAMAAAAA/");
  EXPECT_EQ(encoded({}), "");
}

}  // namespace
}  // namespace quire::api
