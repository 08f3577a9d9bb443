// Memory of the parse states of one answer: what the tokens so far need, whatever their masks have walked
// through.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runner/constraint/testing/byte_matching.h"

namespace quire::runner::constraint {
namespace {

constexpr api::TokenId kEnd = 0;
constexpr int kLetters = 16;

// The first token ends a generation.
std::shared_ptr<Constraint> ConstrainTo(const std::string& grammar, std::vector<std::string> texts) {
  const auto compiled = CompileFormat({api::OutputFormat::Kind::kGrammar, grammar, "grammar"});
  EXPECT_TRUE(compiled.has_value()) << compiled.error().message;
  texts.insert(texts.begin(), "<end>");
  const auto index = std::make_shared<const VocabularyIndex>(
      static_cast<int32_t>(texts.size()),
      [&texts](api::TokenId id) { return std::string_view(texts[static_cast<size_t>(id)]); },
      [](api::TokenId id) { return id == kEnd; }, std::unordered_set<api::TokenId>{kEnd});
  return std::make_shared<Constraint>(*compiled, index);
}

// Its stack spells the text so far. Every byte read pushes a stack for each letter, all but one for nothing;
// a letter ends its rule in its first state, so that masks read the vocabulary behind it for each.
std::shared_ptr<Constraint> StacksThatSpellTheText() {
  std::string rules = "root ::= p\np ::= \"0\"", letters;
  std::vector<std::string> texts;
  for (char x = 'a'; x < 'a' + kLetters; ++x) {
    const std::string rule = std::string("q-") + x;
    rules += " | " + rule + " p \"" + x + "\"";
    letters += "\n" + rule + " ::= \"" + x + "\" | \"\\x01\" " + rule + " \"\\x02\"";
    for (char y = 'a'; y < 'a' + kLetters; ++y) {
      for (char z = 'a'; z < 'a' + kLetters / 2; ++z) texts.push_back({x, y, z});
    }
  }
  return ConstrainTo(rules + letters, std::move(texts));
}

TEST(ParseMemory, MasksLeaveNothingBehind) {
  Matcher matcher(StacksThatSpellTheText());
  for (api::TokenId token = 1; token <= 200; ++token) {
    EXPECT_GT(matcher.Mask().Count(), 1000U);
    ASSERT_TRUE(matcher.Accept(token));
    ASSERT_LT(matcher.bytes(), size_t{512} << 10) << token;
  }
  EXPECT_FALSE(matcher.IsTooExpensive());
}

TEST(ParseMemory, TokensThatAreRefusedLeaveNothingBehind) {
  Matcher matcher(ConstrainTo("root ::= \"[\" root \"]\" | \"0\"", {"[", std::string(1000, '[') + "x"}));
  ASSERT_TRUE(matcher.Accept(1));
  const size_t before = matcher.bytes();
  ASSERT_FALSE(matcher.Accept(2));
  const size_t once = matcher.bytes();
  EXPECT_GT(once, before);  // reserved for the next
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(matcher.Accept(2));
  EXPECT_EQ(matcher.bytes(), once);
}

TEST(ParseMemory, OnlyStacksThatAreUsedStay) {
  Matcher matcher(StacksThatSpellTheText());
  constexpr int kTokens = 20'000;
  for (int i = 0; i < kTokens; ++i) ASSERT_TRUE(matcher.Replay(1 + i % 1000));
  EXPECT_LT(matcher.bytes(), size_t{3 * kTokens} * 64);
  Matcher goes_on = matcher;
  EXPECT_GT(goes_on.Mask().Count(), 1000U);
  EXPECT_FALSE(goes_on.IsTooExpensive());
}

TEST(ParseMemory, StacksThatAreDroppedChangeNoText) {
  std::vector<std::string> texts = {"0"};
  for (char x = 'a'; x < 'a' + kLetters; ++x) texts.emplace_back(1, x);
  std::string rules = "root ::= p\np ::= \"0\"";
  for (char x = 'a'; x < 'a' + kLetters; ++x) rules += std::string(" | \"") + x + "\" p \"" + x + "\"";
  Matcher matcher(ConstrainTo(rules, texts));
  std::vector<api::TokenId> tokens;
  std::mt19937 random(16);
  for (int i = 0; i < 30'000; ++i) tokens.push_back(static_cast<api::TokenId>(2 + random() % kLetters));
  for (const api::TokenId token : tokens) ASSERT_TRUE(matcher.Accept(token));
  ASSERT_TRUE(matcher.Accept(1));
  for (size_t i = tokens.size(); i-- > 0;) {
    ASSERT_EQ(matcher.SingleAllowedToken(), tokens[i]) << i;
    ASSERT_TRUE(matcher.Accept(tokens[i]));
  }
  EXPECT_EQ(matcher.SingleAllowedToken(), kEnd);
}

TEST(ParseMemory, AnAnswerThatNeedsTooManyStacksEnds) {
  const auto constraint =
      ConstrainTo("root ::= \"[\" root \"]\" | \"0\"", {std::string(1000, '['), "[", "0", "]"});
  const auto tokens_before_the_bound = [&constraint](bool masks) {
    Matcher matcher(constraint);
    int tokens = 0;
    for (; tokens < 2000 && !matcher.IsTooLarge(); ++tokens) {
      if (masks) {
        EXPECT_EQ(matcher.Mask().Count(), 3U);
      }
      EXPECT_TRUE(matcher.Replay(1));
      EXPECT_LT(matcher.bytes(), size_t{40} << 20);
    }
    EXPECT_TRUE(matcher.IsTooExpensive());
    EXPECT_EQ(matcher.Mask().Count(), 0U);
    EXPECT_FALSE(matcher.IsComplete());
    return tokens;
  };
  const int tokens = tokens_before_the_bound(true);
  EXPECT_GT(tokens, 500);
  EXPECT_LT(tokens, 2000);
  EXPECT_EQ(tokens_before_the_bound(false), tokens);
}

}  // namespace
}  // namespace quire::runner::constraint
