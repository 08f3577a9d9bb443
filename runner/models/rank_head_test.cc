#include "runner/models/rank_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "runner/kernels/matmul.h"
#include "runner/models/testing/patched_model_files.h"

namespace quire::runner::models {
namespace {

using test::Json;
using test::PatchedModelFiles;
using testing::HasSubstr;

constexpr const char* kQwen3Gguf = "tests/data/gguf/qwen3.f32.gguf";
constexpr int64_t kRankHidden = 64;

void MakeRanking(PatchedModelFiles& files) {
  files.AddF32("cls.output.weight", {2, kRankHidden}, 0.5F);
  files.json["qwen3.pooling_type"] = 4;
  files.json["qwen3.classifier.output_labels"] = {"yes", "no"};
}

TEST(RankHead, IsReadFromGguf) {
  PatchedModelFiles files(kQwen3Gguf);
  EXPECT_FALSE(RanksByAnswer(files));
  MakeRanking(files);
  ASSERT_TRUE(RanksByAnswer(files));
  files.json["tokenizer.chat_template.rerank"] = "a {query} b {document} c";
  const auto head = ReadRankHead(files);
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_EQ(head->prompt.before, "a ");
  EXPECT_EQ(head->prompt.between, " b ");
  EXPECT_EQ(head->prompt.after, " c");
  const std::vector<float> state(kRankHidden, 2.0F);
  EXPECT_EQ(head->yes, std::vector<float>(kRankHidden, 0.5F));
  EXPECT_EQ(head->Score(state), 0);
}

TEST(RankHead, AsksTheQuestionOfTheModelCardUnlessTheFileHasAnother) {
  PatchedModelFiles files(kQwen3Gguf);
  MakeRanking(files);
  const auto head = ReadRankHead(files);
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_TRUE(head->prompt.before.starts_with("<|im_start|>system\nJudge whether the Document meets"));
  EXPECT_TRUE(head->prompt.before.ends_with("\n<Query>: "));
  EXPECT_EQ(head->prompt.between, "\n<Document>: ");
  EXPECT_EQ(head->prompt.after, "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST(RankHead, RefusesOtherAnswersAndQuestions) {
  const auto refusal = [](const char* key, const Json& value) {
    PatchedModelFiles files(kQwen3Gguf);
    MakeRanking(files);
    files.json[key] = value;
    const auto head = ReadRankHead(files);
    return head ? std::string() : head.error().message;
  };
  EXPECT_THAT(refusal("qwen3.classifier.output_labels", {"no", "yes"}),
              HasSubstr("only yes and no, in this order"));
  EXPECT_THAT(refusal("qwen3.classifier.output_labels", {"a", "b", "c"}), HasSubstr("not a list of 2"));
  for (const char* text : {"{query}", "{document} {query}", "{query} {query} {document}"}) {
    EXPECT_THAT(refusal("tokenizer.chat_template.rerank", text), HasSubstr("once each, in this order"));
  }
  PatchedModelFiles files(kQwen3Gguf);
  files.AddF32("cls.output.weight", {1, kRankHidden}, 0.5F);
  files.json["qwen3.pooling_type"] = 4;
  EXPECT_THAT(ReadRankHead(files).error().message, HasSubstr("cls.output.weight has the shape"));
}

TEST(RankHead, TheInstructionOfTheModelCardMayBeReplaced) {
  PatchedModelFiles files(kQwen3Gguf);
  MakeRanking(files);
  const RankPrompt prompt = ReadRankHead(files)->prompt;
  EXPECT_EQ(prompt.before.substr(prompt.instruction_begin, prompt.instruction_end - prompt.instruction_begin),
            "Given a web search query, retrieve relevant passages that answer the query");
  files.json["tokenizer.chat_template.rerank"] = "a {query} b {document} c";
  EXPECT_EQ(ReadRankHead(files)->prompt.instruction_end, 0U);
}

TEST(RankHead, ASequenceClassifierScoresWithOneRow) {
  PatchedModelFiles files("tests/data/models/qwen3");
  files.json["architectures"] = {"Qwen3ForSequenceClassification"};
  ASSERT_TRUE(RanksByAnswer(files));
  EXPECT_THAT(ReadRankHead(files).error().message, HasSubstr("score.weight"));
  files.AddF32("score.weight", {1, kRankHidden}, 0.5F);
  const auto head = ReadRankHead(files);
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_EQ(head->Score(std::vector<float>(kRankHidden, 2.0F)), kRankHidden);
  EXPECT_TRUE(head->prompt.only_with_instruction);
  files.Remove("score.weight");
  files.AddF32("score.weight", {2, kRankHidden}, 0.5F);
  EXPECT_THAT(ReadRankHead(files).error().message, HasSubstr("score.weight has the shape"));
}

TEST(RankHead, OfADirectoryHasTheRowsOfTheOutputMatrix) {
  PatchedModelFiles files("tests/data/models/qwen3");  // its output is its embedding
  EXPECT_FALSE(RanksByAnswer(files));
  const auto head = MakeRankHead(files, 7, 11);
  ASSERT_TRUE(head) << head.error().message;
  const kernels::Matrix table = kernels::AsMatrix(*files.Find("model.embed_tokens.weight"));
  std::vector<float> row(kRankHidden);
  const int32_t id = 11;
  kernels::EmbeddingRows(table, std::span(&id, 1), row);
  EXPECT_EQ(head->no, row);
  EXPECT_NE(head->yes, row);
  std::vector<float> state(kRankHidden, 0.0F);
  state[3] = 2;
  EXPECT_FLOAT_EQ(head->Score(state), 2 * (head->yes[3] - head->no[3]));
  EXPECT_THAT(MakeRankHead(files, 7, 1 << 20).error().message, HasSubstr("do not exist"));
}

}  // namespace
}  // namespace quire::runner::models
