#include "runner/engine/prompt/rank_question.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runner/engine/prompt/embed_prompt.h"
#include "runner/tokenizer/model_tokenizer.h"
#include "runner/weights/model_files.h"

namespace quire::runner::engine {
namespace {

class RankQuestion : public testing::Test {
 protected:
  RankQuestion() {
    const auto files = weights::Open("tests/data/models/qwen3");
    tokenizer_ = *tokenizer::LoadTokenizer(**files);
  }
  api::Result<FittedPrompt> RenderQuestion(const std::string& query, const std::string& document,
                                           int32_t num_ctx,
                                           api::Overflow overflow = api::Overflow::kTruncate) const {
    const api::EmbedPrompt pair{.text = query, .rank = true, .document = document};
    return BuildRankQuestion(*tokenizer_, prompt_, pair, num_ctx, overflow);
  }
  std::vector<api::TokenId> Ids(const std::string& text) const {
    return *tokenizer_->Encode(text, tokenizer::SpecialTokens::kParse);
  }

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  const models::RankPrompt prompt_ = {
      .before = "<|im_start|>query: ", .between = "\ndocument: ", .after = "<|im_end|>\n"};
};

TEST_F(RankQuestion, IsEncodedAsOneText) {
  const auto asked = RenderQuestion("what is it?", "a  panda\n", 1000);
  ASSERT_TRUE(asked) << asked.error().message;
  EXPECT_EQ(asked->tokens, Ids("<|im_start|>query: what is it?\ndocument: a  panda\n<|im_end|>\n"));
  EXPECT_EQ(asked->dropped, 0);
}

TEST_F(RankQuestion, ControlTokensInTheTextsArePlain) {
  const auto asked = RenderQuestion("a<|im_end|>", "b<|im_start|>", 1000);
  ASSERT_TRUE(asked) << asked.error().message;
  const auto control = Ids("<|im_end|>").front();
  EXPECT_EQ(std::ranges::count(asked->tokens, control), 1);
}

TEST_F(RankQuestion, TheDocumentLosesItsEnd) {
  std::string document;
  for (int i = 0; i < 50; ++i) document += "word ";
  const auto whole = RenderQuestion("what is it?", document, 1000),
             cut = RenderQuestion("what is it?", document, 40);
  ASSERT_TRUE(whole && cut);
  EXPECT_EQ(cut->tokens.size(), 40U);
  EXPECT_EQ(cut->dropped, static_cast<int32_t>(whole->tokens.size()) - 40);
  const auto tail = Ids("<|im_end|>\n");
  EXPECT_TRUE(std::equal(tail.rbegin(), tail.rend(), cut->tokens.rbegin()));
  EXPECT_EQ(RenderQuestion("what is it?", document, 40, api::Overflow::kRefuse).error().code,
            api::ErrorCode::kContextLengthExceeded);
  EXPECT_EQ(RenderQuestion(document, "a", 40).error().code, api::ErrorCode::kContextLengthExceeded);
}

TEST_F(RankQuestion, ARequestMayReplaceTheInstruction) {
  models::RankPrompt prompt{
      .before = "<|im_start|>ask: any\nquery: ", .between = "\n", .after = "<|im_end|>"};
  api::EmbedPrompt pair{.text = "q", .rank = true, .document = "d", .instruction = "which<|im_end|>?"};
  EXPECT_EQ(BuildRankQuestion(*tokenizer_, prompt, pair, 1000, api::Overflow::kTruncate).error().field,
            "instruction");
  prompt.instruction_begin = prompt.before.find("any");
  prompt.instruction_end = prompt.instruction_begin + 3;
  const auto asked = BuildRankQuestion(*tokenizer_, prompt, pair, 1000, api::Overflow::kTruncate);
  ASSERT_TRUE(asked) << asked.error().message;
  EXPECT_EQ(std::ranges::count(asked->tokens, Ids("<|im_end|>").front()), 1) << "control tokens are plain";
  pair.instruction = "which?";
  EXPECT_EQ(BuildRankQuestion(*tokenizer_, prompt, pair, 1000, api::Overflow::kTruncate)->tokens,
            Ids("<|im_start|>ask: which?\nquery: q\nd<|im_end|>"));
  prompt.only_with_instruction = true;
  pair.instruction.clear();
  EXPECT_EQ(BuildRankQuestion(*tokenizer_, prompt, pair, 1000, api::Overflow::kTruncate)->tokens, Ids("qd"));
}

TEST(RankPair, OfAClassifierWithoutAQuestionIsFramedByItsTokenizer) {
  const auto files = weights::Open("tests/data/models/llama");
  const auto tokenizer = *tokenizer::LoadTokenizer(**files);
  const auto encode = [&](std::string_view text) {
    return tokenizer->Encode(text, tokenizer::SpecialTokens::kAsText);
  };
  models::RankPrompt prompt;
  prompt.only_with_instruction = true;
  const SentenceSettings sentence;
  const EmbedContext context{.tokenizer = *tokenizer,
                             .sentence = sentence,
                             .rank_prompt = &prompt,
                             .num_ctx = 100,
                             .encode = encode};
  const auto pair = BuildEmbedPrompt(context, {.text = "what is it?", .rank = true, .document = "a bear"});
  ASSERT_TRUE(pair) << pair.error().message;
  std::vector<api::TokenId> expected;
  for (const char* text : {"what is it?", "a bear"}) {
    expected.push_back(*tokenizer->bos_id());
    const std::vector<api::TokenId> ids = encode(text).value();
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(pair->tokens, expected);
}

TEST_F(RankQuestion, ABoundOfTheDocumentIsNoOverflow) {
  std::string document;
  for (int i = 0; i < 50; ++i) document += "word ";
  api::EmbedPrompt pair{.text = "q", .rank = true, .document = document, .document_tokens_max = 3};
  const auto cut = BuildRankQuestion(*tokenizer_, prompt_, pair, 40, api::Overflow::kRefuse);
  ASSERT_TRUE(cut) << cut.error().message;
  pair.document_tokens_max = 1000;
  const auto whole = BuildRankQuestion(*tokenizer_, prompt_, pair, 1000, api::Overflow::kRefuse);
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_LT(cut->tokens.size(), whole->tokens.size());
  EXPECT_EQ(cut->dropped, static_cast<int32_t>(whole->tokens.size() - cut->tokens.size()));
  EXPECT_EQ(whole->dropped, 0);
  EXPECT_FALSE(BuildRankQuestion(*tokenizer_, prompt_, pair, 40, api::Overflow::kRefuse));
}

}  // namespace
}  // namespace quire::runner::engine
