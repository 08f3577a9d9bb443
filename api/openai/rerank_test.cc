#include "api/openai/rerank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <variant>

#include "api/base/limits.h"

namespace quire::api {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

RerankRequest Parse(RerankDialect dialect, const json& body) {
  auto request = ParseRerank(dialect, body.dump());
  EXPECT_TRUE(request) << request.error().message;
  return request.value_or(RerankRequest());
}

std::string ErrorOf(RerankDialect dialect, const json& body) {
  const auto request = ParseRerank(dialect, body.dump());
  return request ? "no error" : request.error().field + ": " + request.error().message;
}

EmbedPrompt PairOf(const RerankRequest& request, size_t i) {
  return std::get<EmbedPrompt>(request.pairs.At(i, {}).prompt);
}

const EmbedResult kScores{.vectors = {{-1.0F}, {2.0F}, {0.0F}}, .prompt_tokens = 30};

TEST(Rerank, PairsTheQueryWithEachDocument) {
  const auto request = Parse(RerankDialect::kJina, {{"model", "m"},
                                                    {"query", "q"},
                                                    {"documents", {"a", json{{"text", "b"}}}},
                                                    {"top_n", 2},
                                                    {"truncate", false}});
  ASSERT_EQ(request.pairs.inputs.size(), 2U);
  EXPECT_EQ(PairOf(request, 0).text, "q");
  EXPECT_EQ(request.pairs.inputs[1].document, "b");
  EXPECT_TRUE(request.pairs.inputs[1].rank);
  EXPECT_EQ(request.pairs.overflow, Overflow::kRefuse);
  EXPECT_EQ(request.pairs.NameOf(1), "documents[1]");
}

TEST(Rerank, ScoresArePairwiseOrOneWithAll) {
  const auto one = Parse(RerankDialect::kScore, {{"model", "m"}, {"text_1", "a"}, {"text_2", {"b", "c"}}});
  EXPECT_EQ(PairOf(one, 1).text, "a");
  const auto both =
      Parse(RerankDialect::kScore, {{"model", "m"}, {"text_1", {"a", "b"}}, {"text_2", {"c", "d"}}});
  EXPECT_EQ(PairOf(both, 1).text, "b");
  EXPECT_EQ(both.pairs.inputs[1].document, "d");
  EXPECT_THAT(ErrorOf(RerankDialect::kScore, {{"model", "m"}, {"text_1", {"a", "b"}}, {"text_2", "c"}}),
              HasSubstr("text_2: "));
}

TEST(Rerank, ABoundOfDocumentsAndAnInstructionGoWithEachPair) {
  const auto request = Parse(RerankDialect::kCohere, {{"model", "m"},
                                                      {"query", "q"},
                                                      {"documents", {"a", "b"}},
                                                      {"max_tokens_per_doc", 9},
                                                      {"instruction", "i"}});
  EXPECT_EQ(request.pairs.inputs[1].document_tokens_max, 9);
  EXPECT_EQ(PairOf(request, 1).instruction, "i");
}

TEST(Rerank, RefusesByName) {
  EXPECT_THAT(ErrorOf(RerankDialect::kJina, {{"documents", {"a"}}}), HasSubstr("query: "));
  EXPECT_THAT(ErrorOf(RerankDialect::kJina, {{"query", "q"}}), HasSubstr("documents: "));
  EXPECT_THAT(ErrorOf(RerankDialect::kJina, {{"query", "q"}, {"documents", json::array()}}),
              HasSubstr("must not be empty"));
  EXPECT_THAT(ErrorOf(RerankDialect::kJina, {{"query", "q"}, {"documents", {1}}}), HasSubstr("documents: "));
  EXPECT_THAT(ErrorOf(RerankDialect::kCohere, {{"query", "q"}, {"documents", {"a"}}}), HasSubstr("model"));
  EXPECT_THAT(ErrorOf(RerankDialect::kCohere,
                      {{"model", "m"}, {"query", "q"}, {"documents", {"a"}}, {"max_tokens_per_doc", 0}}),
              HasSubstr("max_tokens_per_doc"));
  const json left = {{"query", "q"}, {"texts", {"a"}}, {"truncation_direction", "Left"}};
  EXPECT_THAT(ErrorOf(RerankDialect::kJina, left), HasSubstr("truncation_direction"));
}

// 1 MB for 64 documents, 64 KiB for 2,048.
TEST(Rerank, CopiesOfTheQueryAreBounded) {
  const auto parsed = [](const char* name, size_t bytes, size_t documents) {
    json body = {{"query", "q"}, {"documents", std::vector<std::string>(documents, "x")}};
    body[name] = std::string(bytes, 'q');
    return ParseRerank(RerankDialect::kJina, body.dump());
  };
  constexpr size_t kTexts = kEmbedInputsMax;
  for (const char* name : {"query", "instruction", "instruct"}) {
    EXPECT_TRUE(parsed(name, kBodyBytesMax / kTexts - 1, kTexts)) << name;
    EXPECT_TRUE(parsed(name, size_t{1} << 20, 1)) << name;
    const auto refused = parsed(name, kBodyBytesMax / kTexts + 1, kTexts);
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().code, ErrorCode::kTooLarge);
    EXPECT_EQ(refused.error().field, name);
  }
  const std::string half(kBodyBytesMax / kTexts / 2 + 1, 'q');
  const std::vector<std::string> texts(kTexts, "x");
  EXPECT_THAT(ErrorOf(RerankDialect::kJina, {{"query", half}, {"instruction", half}, {"documents", texts}}),
              HasSubstr("instruction: "));
  EXPECT_THAT(ErrorOf(RerankDialect::kScore,
                      {{"model", "m"}, {"text_1", std::string(size_t{1} << 20, 'q')}, {"text_2", texts}}),
              HasSubstr("text_1: "));
}

TEST(Rerank, TakesTheDirectionThatIsImplemented) {
  EXPECT_TRUE(
      Parse(RerankDialect::kJina, {{"query", "q"}, {"texts", {"a"}}, {"truncation_direction", "Right"}})
          .texts);
}

TEST(Rerank, RepliesAreInTheOrderOfTheScores) {
  auto request = Parse(RerankDialect::kJina, {{"model", "m"},
                                              {"query", "q"},
                                              {"documents", {"a", "b", "c"}},
                                              {"return_documents", true},
                                              {"top_n", 2}});
  const json jina = json::parse(EncodeRerank(request, kScores, 0));
  ASSERT_EQ(jina["results"].size(), 2U);
  EXPECT_EQ(jina["results"][0]["index"], 1);
  EXPECT_NEAR(jina["results"][0]["relevance_score"].get<double>(), 0.880797, 1e-6);
  EXPECT_EQ(jina["results"][0]["document"]["text"], "b");
  EXPECT_EQ(jina["results"][1]["index"], 2);
  EXPECT_EQ(jina["usage"]["total_tokens"], 30);
  EXPECT_EQ(jina["model"], "m");
  request.raw_scores = true;
  EXPECT_EQ(json::parse(EncodeRerank(request, kScores, 0))["results"][0]["relevance_score"], 2.0);
}

TEST(Rerank, OtherDialectsHaveShapesOfTheirOwn) {
  const auto cohere =
      Parse(RerankDialect::kCohere, {{"model", "m"}, {"query", "q"}, {"documents", {"a", "b", "c"}}});
  EXPECT_EQ(json::parse(EncodeRerank(cohere, kScores, 0))["meta"]["api_version"]["version"], "2");
  const auto texts = Parse(RerankDialect::kJina, {{"query", "q"}, {"texts", {"a", "b", "c"}}});
  const json list = json::parse(EncodeRerank(texts, kScores, 0));
  ASSERT_TRUE(list.is_array());
  EXPECT_EQ(list[0]["index"], 1);
  const auto score =
      Parse(RerankDialect::kScore, {{"model", "m"}, {"text_1", "q"}, {"text_2", {"a", "b", "c"}}});
  const json scores = json::parse(EncodeRerank(score, kScores, 7));
  EXPECT_EQ(scores["data"][2]["index"], 2);
  EXPECT_EQ(scores["data"][2]["score"], 0.5);
  EXPECT_EQ(scores["created"], 7);
}

}  // namespace
}  // namespace quire::api
