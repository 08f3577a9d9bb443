#include "runner/engine/steps/answer_text.h"

#include <gtest/gtest.h>

#include <string>

#include "runner/engine/prompt/loaded_model.h"
#include "runner/engine/testing/engine_harness.h"

namespace quire::runner::engine {
namespace {

TEST(AnswerText, ControlTokensDoNotComeOut) {
  const LoadedModel model = *Load(kDemoModel, [](float, std::string_view) {});
  const auto ids = *model.tokenizer->Encode("a<|im_start|>b<|fim_pad|>", tokenizer::SpecialTokens::kParse);
  AnswerText answer(model.tokenizer, tokenizer::Detokenizer::StartAt::kMiddle, {});
  bool special = false;
  for (const api::TokenId id : ids) {
    special = special || model.tokenizer->IsSpecial(id);
    answer.Append(id);
  }
  answer.End();
  std::string text;
  output::OutputChunks chunks;
  answer.PopCertain(chunks);
  for (const output::OutputChunk& chunk : chunks) text += chunk.text;
  EXPECT_TRUE(special);
  EXPECT_EQ(text, "ab<|fim_pad|>");  // which is no token of this vocabulary
}

}  // namespace
}  // namespace quire::runner::engine
