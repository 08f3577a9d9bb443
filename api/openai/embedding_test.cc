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
  EXPECT_EQ(lists.types, std::vector{VectorType::kBase64});
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
    request.types = {VectorType::kBase64};
    const auto reply = json::parse(EncodeEmbed(request, {.vectors = {std::move(vector)}}));
    return reply["data"][0]["embedding"].get<std::string>();
  };
  EXPECT_EQ(encoded({1}), "AACAPw==");
  EXPECT_EQ(encoded({1, -2}), "AACAPwAAAMA=");
  EXPECT_EQ(encoded({1, -2, 0.5F}), "AACAPwAAAMAAAAA/");
  EXPECT_EQ(encoded({}), "");
}

TEST(ParseEmbed, OpenAiTakesTruncationAndPrefixesByName) {
  const auto request =
      Parsed(EmbedDialect::kOpenAi, R"({"model":"m","input":["a"],"truncate":"START","input_type":"query"})");
  EXPECT_EQ(request.overflow, Overflow::kTruncate);
  EXPECT_TRUE(request.inputs[0].keep_end);
  EXPECT_EQ(request.shared.prompt_name, "query");
  EXPECT_EQ(std::get<EmbedPrompt>(request.At(0, {}).prompt).prompt_name, "query");
  EXPECT_TRUE(request.inputs[0].prompt_required);
  const auto plain = Parsed(EmbedDialect::kOpenAi, R"({"model":"m","input":"a","truncate":"none"})");
  EXPECT_EQ(plain.overflow, Overflow::kRefuse);
  EXPECT_TRUE(plain.shared.prompt_name.empty());
  ExpectRefused(EmbedDialect::kOpenAi, R"({"model":"m","input":"a","truncate":"MIDDLE"})", "truncate");
  ExpectRefused(EmbedDialect::kOpenAi, R"({"model":"m","input":[1],"input_type":"query"})", "input_type");
  ExpectRefused(EmbedDialect::kOpenAi, R"({"model":"m","input":"a","pooling":"x"})", "pooling");
}

TEST(ParseEmbed, CopiesOfAPrefixesNameAreBounded) {
  const auto parsed = [](EmbedDialect dialect, const char* name, size_t bytes) {
    const bool tei = dialect == EmbedDialect::kTei;
    json body = {{"model", "m"}, {name, std::string(bytes, 'n')}};
    body[tei ? "inputs" : "input"] = std::vector<std::string>(kEmbedInputsMax, "x");
    return ParseEmbed(dialect, body.dump());
  };
  constexpr size_t kFits = kBodyBytesMax / kEmbedInputsMax;
  for (const auto& [dialect, name] :
       {std::pair(EmbedDialect::kOpenAi, "input_type"), std::pair(EmbedDialect::kTei, "prompt_name")}) {
    EXPECT_TRUE(parsed(dialect, name, kFits)) << name;
    const auto refused = parsed(dialect, name, kFits + 1);
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().code, ErrorCode::kTooLarge);
    EXPECT_EQ(refused.error().field, name);
  }
}

TEST(ParseEmbed, OpenAiTakesWhatJinasClientsSend) {
  const auto request =
      Parsed(EmbedDialect::kOpenAi,
             R"({"model":"m","input":[{"text":"a"},"b"],"embedding_type":"ubinary","normalized":false})");
  EXPECT_EQ(Texts(request), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.types, std::vector{VectorType::kUbinary});
  EXPECT_FALSE(request.inputs[1].normalize);
  const auto reply = json::parse(EncodeEmbed(request, {.vectors = {{1, -2}, {3, 4}}}));
  EXPECT_EQ(reply["data"][1]["embedding"], json::parse("[192]"));
  ExpectRefused(EmbedDialect::kOpenAi, R"({"model":"m","input":"a","embedding_type":"int8"})",
                "embedding_type");
  ExpectRefused(EmbedDialect::kOpenAi, R"({"model":"m","input":[{"text":"a","image":"b"}]})", "input");
  ExpectRefused(EmbedDialect::kOllama, R"({"model":"m","input":[{"text":"a"}]})", "input");
}

TEST(ParseEmbed, TextEmbeddingsInferenceHasNamesOfItsOwn) {
  const auto plain = Parsed(EmbedDialect::kTei, R"({"inputs":"a"})");
  EXPECT_EQ(plain.model, "");
  EXPECT_EQ(plain.overflow, Overflow::kRefuse);
  EXPECT_TRUE(plain.inputs[0].normalize);
  EXPECT_EQ(plain.NameOf(0), "inputs");
  const auto request =
      Parsed(EmbedDialect::kTei, R"({"inputs":["a","b"],"truncate":true,"truncation_direction":"Left",
                                     "normalize":false,"prompt_name":"query","dimensions":8})");
  EXPECT_EQ(Texts(request), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.NameOf(1), "inputs[1]");
  EXPECT_EQ(request.overflow, Overflow::kTruncate);
  const EmbedPrompt& prompt = request.inputs[1];
  EXPECT_TRUE(prompt.keep_end && prompt.prompt_required && !prompt.normalize);
  EXPECT_EQ(request.shared.prompt_name, "query");
  EXPECT_EQ(prompt.dimensions, 8);
  EXPECT_EQ(Parsed(EmbedDialect::kTei, R"({"inputs":[[1,2]]})").inputs[0].tokens.size(), 2U);
  EXPECT_EQ(EncodeEmbed(request, {.vectors = {{1, 2}, {3, 4}}}), "[[1,2],[3,4]]");
  ExpectRefused(EmbedDialect::kTei, R"({"input":"a"})", "inputs");
  ExpectRefused(EmbedDialect::kTei, R"({"inputs":"a","truncation_direction":"up"})", "truncation_direction");
  ExpectRefused(EmbedDialect::kTei, R"({"inputs":[1],"prompt_name":"query"})", "prompt_name");
}

TEST(ParseEmbed, CohereTakesTextsAndNamesOfPrefixes) {
  const auto request = Parsed(
      EmbedDialect::kCohere,
      R"({"model":"m","texts":["a","b"],"input_type":"search_query","output_dimension":8,"truncate":"START",
          "embedding_types":["ubinary","float"]})");
  EXPECT_EQ(Texts(request), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.shared.prompt_name, "search_query");
  EXPECT_FALSE(request.inputs[1].prompt_required);
  EXPECT_EQ(request.inputs[1].dimensions, 8);
  EXPECT_TRUE(request.inputs[1].keep_end);
  EXPECT_EQ(request.types, (std::vector{VectorType::kUbinary, VectorType::kFloat}));
  EXPECT_EQ(request.NameOf(1), "texts[1]");
  const auto inputs =
      Parsed(EmbedDialect::kCohere, R"({"model":"m","input_type":"clustering","truncate":"NONE",
          "inputs":[{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})");
  EXPECT_EQ(Texts(inputs), std::vector<std::string>{"ab"});
  EXPECT_EQ(inputs.overflow, Overflow::kRefuse);
  EXPECT_EQ(Parsed(EmbedDialect::kCohereOld, R"({"model":"m","texts":["a"]})").overflow, Overflow::kTruncate);
}

TEST(ParseEmbed, CohereNamesTheFieldThatIsWrong) {
  const auto refuse = [](const std::string& rest, const std::string& field) {
    ExpectRefused(EmbedDialect::kCohere, R"({"model":"m",)" + rest + "}", field);
  };
  refuse(R"("texts":["a"])", "input_type");
  refuse(R"("texts":["a"],"input_type":"image")", "input_type");
  refuse(R"("input_type":"clustering")", "texts");
  refuse(R"("texts":[],"input_type":"clustering")", "texts");
  refuse(R"("texts":[1],"input_type":"clustering")", "texts");
  refuse(R"("texts":["a"],"inputs":[{"content":[{"type":"text","text":"a"}]}],"input_type":"clustering")",
         "inputs");
  refuse(R"("inputs":[{"content":[{"type":"image_url"}]}],"input_type":"clustering")", "inputs");
  refuse(R"("texts":["a"],"input_type":"clustering","embedding_types":["int8"])", "embedding_types");
  refuse(R"("texts":["a"],"input_type":"clustering","images":["x"])", "images");
  refuse(R"("texts":["a"],"input_type":"clustering","truncate":"LEFT")", "truncate");
  refuse(R"("texts":["a"],"input_type":"clustering","output_dimension":0)", "output_dimension");
}

TEST(EncodeEmbed, CohereHasAListOfEachType) {
  const EmbedResult result{.vectors = {{1, -2, 3, 0, 0, 0, 0, 4, 5}}, .prompt_tokens = 7};
  auto request = Parsed(EmbedDialect::kCohere, R"({"model":"m","texts":["a"],"input_type":"clustering",
      "embedding_types":["float","base64","binary","ubinary"]})");
  const auto reply = json::parse(EncodeEmbed(request, result));
  EXPECT_EQ(reply["response_type"], "embeddings_by_type");
  EXPECT_EQ(reply["embeddings"]["float"].get<std::vector<std::vector<float>>>(), result.vectors);
  EXPECT_EQ(reply["embeddings"]["ubinary"], json::parse("[[161,128]]"));
  EXPECT_EQ(reply["embeddings"]["binary"], json::parse("[[33,0]]"));
  EXPECT_TRUE(reply["embeddings"]["base64"][0].is_string());
  EXPECT_EQ(reply["texts"], json::parse(R"(["a"])"));
  EXPECT_EQ(reply["meta"]["billed_units"]["input_tokens"], 7);
  const auto old =
      json::parse(EncodeEmbed(Parsed(EmbedDialect::kCohereOld, R"({"model":"m","texts":["a"]})"), result));
  EXPECT_EQ(old["response_type"], "embeddings_floats");
  EXPECT_EQ(old["embeddings"].get<std::vector<std::vector<float>>>(), result.vectors);
}

}  // namespace
}  // namespace quire::api
