#include "runner/engine/prompt/context_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace quire::runner::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// One token per character of every message.
api::Result<std::vector<api::TokenId>> CountCharacters(std::span<const api::Message> messages,
                                                       size_t tokens_max) {
  std::vector<api::TokenId> tokens;
  for (const auto& message : messages) {
    for (const char c : message.content) tokens.push_back(c);
  }
  if (tokens.size() > tokens_max) return api::Fail(api::ErrorCode::kContextLengthExceeded, "too long");
  return tokens;
}

std::vector<api::Message> Conversation() {
  return {{"system", "S"}, {"user", "aaaaaaaa"}, {"assistant", "bbbb"},
          {"user", "cc"},  {"assistant", "d"},   {"user", "e"}};
}

std::string Text(const FittedPrompt& prompt) { return {prompt.tokens.begin(), prompt.tokens.end()}; }

TEST(FitMessages, LeavesAPromptThatFitsAlone) {
  const auto fitted = FitMessages(Conversation(), 18, api::Overflow::kRefuse, CountCharacters);
  EXPECT_EQ(Text(*fitted), "Saaaaaaaabbbbccde");
  EXPECT_EQ(fitted->dropped, 0);
}

TEST(FitMessages, DropsTheOldestButNeverSystemOrTheLast) {
  const auto fitted = FitMessages(Conversation(), 17, api::Overflow::kTruncate, CountCharacters);
  EXPECT_EQ(Text(*fitted), "Sbbbbccde");
  EXPECT_EQ(fitted->dropped, 8);
  EXPECT_EQ(Text(*FitMessages(Conversation(), 9, api::Overflow::kTruncate, CountCharacters)), "Sccde");
  EXPECT_EQ(Text(*FitMessages(Conversation(), 3, api::Overflow::kTruncate, CountCharacters)), "Se");
}

TEST(FitMessages, KeepsTheEndOfTheLastWhereThatAloneIsTooLong) {
  std::vector<api::Message> messages = Conversation();
  messages.back().content = "\u00e90123456789\u00e9abcdefgh";
  const auto cut = FitMessages(messages, 9, api::Overflow::kTruncate, CountCharacters);
  ASSERT_TRUE(cut);
  EXPECT_EQ(Text(*cut), "Sbcdefgh");
  EXPECT_EQ(cut->dropped, 30);
  EXPECT_EQ(Text(*FitMessages(messages, 12, api::Overflow::kTruncate, CountCharacters)), "S\u00e9abcdefgh");
  EXPECT_EQ(Text(*FitMessages(messages, 11, api::Overflow::kTruncate, CountCharacters)), "Sabcdefgh")
      << "characters are whole";
  EXPECT_FALSE(FitMessages(messages, 9, api::Overflow::kDropMessages, CountCharacters));
  EXPECT_FALSE(FitMessages(messages, 2, api::Overflow::kTruncate, CountCharacters));
}

TEST(FitMessages, RefusesWithBothNumbers) {
  const auto refused = FitMessages(Conversation(), 17, api::Overflow::kRefuse, CountCharacters);
  EXPECT_EQ(refused.error().code, api::ErrorCode::kContextLengthExceeded);
  EXPECT_EQ(refused.error().message, "request (17 tokens) exceeds the available context size (17 tokens)");
  const auto too_small = FitMessages(Conversation(), 2, api::Overflow::kTruncate, CountCharacters);
  EXPECT_THAT(too_small.error().message,
              HasSubstr("(2 tokens) exceeds the available context size (2 tokens)"));
}

TEST(FitMessages, StepsOverSelectionsTheTemplateRefuses) {
  const auto strict = [](std::span<const api::Message> messages,
                         size_t most) -> api::Result<std::vector<api::TokenId>> {
    if (messages[1].role != "user")
      return api::Fail(api::ErrorCode::kInvalidArgument, "user must come first");
    return CountCharacters(messages, most);
  };
  const auto fitted = FitMessages(Conversation(), 17, api::Overflow::kTruncate, strict);
  EXPECT_EQ(Text(*fitted), "Sccde");
}

TEST(FitMessages, ReportsWhatTheTemplateSaysOfTheWholePrompt) {
  const auto failing = [](std::span<const api::Message>, size_t) -> api::Result<std::vector<api::TokenId>> {
    return api::Fail(api::ErrorCode::kInvalidArgument, "no such role");
  };
  EXPECT_EQ(FitMessages(Conversation(), 17, api::Overflow::kTruncate, failing).error().message,
            "no such role");
}

TEST(FitMessages, WhatIsRefusedIsReadForSixteenContexts) {
  std::vector<size_t> limits;
  const auto encode = [&limits](std::span<const api::Message> messages, size_t most) {
    limits.push_back(most);
    return CountCharacters(messages, most);
  };
  std::vector<api::Message> messages = Conversation();
  messages.back().content.assign(161, 'e');
  const auto refused = FitMessages(messages, 10, api::Overflow::kDropMessages, encode);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, api::ErrorCode::kContextLengthExceeded);
  EXPECT_THAT(refused.error().message, HasSubstr("(more than 160 tokens"));
  EXPECT_THAT(limits, testing::Each(160U));
  // What is truncated is counted to its end, once it is known to fit.
  messages = Conversation();
  messages[1].content.assign(1000, 'a');
  const auto fitted = FitMessages(messages, 10, api::Overflow::kTruncate, encode);
  EXPECT_EQ(Text(*fitted), "Sbbbbccde");
  EXPECT_EQ(fitted->dropped, 1000);
}

std::vector<api::TokenId> Count(int n) {
  std::vector<api::TokenId> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(FitTokens, KeepsTheFirstAndTheNewest) {
  const auto fitted = FitTokens(Count(10), 6, 2, api::Overflow::kTruncate);
  EXPECT_THAT(fitted->tokens, ElementsAre(0, 1, 7, 8, 9));
  EXPECT_EQ(fitted->dropped, 5);
  EXPECT_THAT(FitTokens(Count(10), 4, -1, api::Overflow::kTruncate)->tokens, ElementsAre(0, 1, 2));
  EXPECT_THAT(FitTokens(Count(10), 4, 0, api::Overflow::kTruncate)->tokens, ElementsAre(7, 8, 9));
}

TEST(FitTokens, RefusesWithBothNumbers) {
  EXPECT_EQ(FitTokens(Count(10), 10, 0, api::Overflow::kRefuse).error().message,
            "request (10 tokens) exceeds the available context size (10 tokens)");
  EXPECT_EQ(FitTokens(Count(9), 10, 0, api::Overflow::kRefuse)->dropped, 0);
}

// An image is a token here.
api::Result<std::vector<api::TokenId>> CountImagesToo(std::span<const api::Message> messages,
                                                      size_t tokens_max) {
  std::vector<api::TokenId> tokens;
  for (const auto& message : messages) {
    size_t from = 0;
    for (const api::Image& image : message.images) {
      for (; from < image.at; ++from) tokens.push_back(message.content[from]);
      tokens.push_back('#');
    }
    for (; from < message.content.size(); ++from) tokens.push_back(message.content[from]);
  }
  if (tokens.size() > tokens_max) return api::Fail(api::ErrorCode::kContextLengthExceeded, "too long");
  return tokens;
}

api::Message WithImages(api::Message message, std::initializer_list<size_t> places) {
  for (const size_t at : places) message.images.push_back({at, std::make_shared<const std::string>("i")});
  return message;
}

TEST(FitMessages, ImagesAreDroppedWithTheirMessages) {
  const std::vector<api::Message> messages = {WithImages({"user", "aaaa"}, {0, 4}),
                                              {"assistant", "b"},
                                              WithImages({"user", "cc"}, {0}),
                                              {"assistant", "d"},
                                              WithImages({"user", "e"}, {1})};
  const auto fit = [&messages](int32_t num_ctx) {
    const auto fitted = FitMessages(messages, num_ctx, api::Overflow::kTruncate, CountImagesToo);
    return fitted ? Text(*fitted) : fitted.error().message;
  };
  EXPECT_EQ(fit(14), "#aaaa#b#ccde#");
  EXPECT_EQ(fit(13), "b#ccde#");
  EXPECT_EQ(fit(7), "#ccde#");
  EXPECT_EQ(fit(6), "de#");
}

TEST(FitMessages, OfALastMessageTheTextIsCutAndTheImagesStay) {
  const std::vector<api::Message> messages = {WithImages({"user", "abcdef"}, {0, 4})};
  const auto fitted = FitMessages(messages, 6, api::Overflow::kTruncate, CountImagesToo);
  ASSERT_TRUE(fitted) << fitted.error().message;
  EXPECT_EQ(Text(*fitted), "#d#ef");
  const std::vector<api::Message> bare = {WithImages({"user", ""}, {0, 0, 0})};
  EXPECT_EQ(FitMessages(bare, 3, api::Overflow::kTruncate, CountImagesToo).error().code,
            api::ErrorCode::kContextLengthExceeded);
}

}  // namespace
}  // namespace quire::runner::engine
