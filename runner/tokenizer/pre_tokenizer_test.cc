#include "runner/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "runner/tokenizer/known_patterns.h"
#include "runner/tokenizer/load_pre_tokenizer.h"
#include "runner/tokenizer/text_steps.h"
#include "runner/work/work_budget.h"

namespace quire::runner::tokenizer {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Split(const PreTokenizer& pre_tokenizer, std::string_view text) {
  RegexMatcher matcher;
  std::vector<std::string> pieces;
  for (const Piece& piece : pre_tokenizer.Split(text, matcher)) {
    pieces.emplace_back(text.substr(piece.begin, piece.end - piece.begin));
  }
  return pieces;
}

PreTokenizer PreTokenizerOf(const json& description) {
  auto loaded = LoadPreTokenizer(description);
  EXPECT_TRUE(loaded) << loaded.error().message;
  return loaded ? std::move(loaded->splits) : PreTokenizer{};
}

const json kBytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};

json SplitStepOf(const char* pattern, const char* behavior, bool invert = false) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", invert}};
}

json Sequence(std::vector<json> steps) {
  steps.push_back(kBytes);
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

// The examples of the Hugging Face documentation of each behavior: "the-final--countdown" at "-".
TEST(PreTokenizer, BehaviorsOfASplit) {
  const auto with = [](const char* behavior, bool invert = false) {
    return Split(PreTokenizerOf(Sequence({SplitStepOf("-", behavior, invert)})), "the-final--countdown");
  };
  EXPECT_THAT(with("Removed"), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(with("Isolated"), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(with("MergedWithPrevious"), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(with("MergedWithNext"), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(with("Contiguous"), ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(with("Removed", true), ElementsAre("-", "-", "-"));
}

TEST(PreTokenizer, EmptyMatchesCutWithoutAPiece) {
  EXPECT_THAT(Split(PreTokenizerOf(Sequence({SplitStepOf("x*", "Isolated")})), "axxb\u00E9"),
              ElementsAre("a", "xx", "b", "\u00E9"));
  EXPECT_THAT(Split(PreTokenizerOf(Sequence({SplitStepOf("(?=\\p{Lu})", "Isolated")})), "aBcD"),
              ElementsAre("a", "Bc", "D"));
}

TEST(PreTokenizer, StepsCutThePiecesOfTheStepBefore) {
  const auto steps = PreTokenizerOf(Sequence(
      {json{{"type", "Digits"}, {"individual_digits", true}}, SplitStepOf(" ?\\p{L}+", "Isolated")}));
  EXPECT_THAT(Split(steps, "ab 12cd"), ElementsAre("ab", " ", "1", "2", "cd"));
  const auto grouped = PreTokenizerOf(Sequence({json{{"type", "Digits"}, {"individual_digits", false}}}));
  EXPECT_THAT(Split(grouped, "ab12\u0663cd"), ElementsAre("ab", "12\u0663", "cd"));
}

TEST(PreTokenizer, LiteralPatterns) {
  const json step = {{"type", "Split"}, {"pattern", {{"String", ". "}}}, {"behavior", "MergedWithPrevious"}};
  EXPECT_THAT(Split(PreTokenizerOf(Sequence({step})), "a. b.c. d"), ElementsAre("a. ", "b.c. ", "d"));
}

TEST(PreTokenizer, ByteLevelWithItsOwnPattern) {
  const auto loaded = PreTokenizerOf({{"type", "ByteLevel"}});
  EXPECT_TRUE(loaded.add_prefix_space);
  EXPECT_THAT(Split(loaded, "Hello  world, it's 42!"),
              ElementsAre("Hello", " ", " world", ",", " it", "'s", " 42", "!"));
}

TEST(PreTokenizer, RefusalsNameTheField) {
  const std::pair<json, const char*> cases[] = {
      {"ByteLevel", "pre_tokenizer.type"},
      {{{"type", "Whitespace"}}, "type \"Whitespace\" is not supported"},
      {{{"type", "Sequence"}}, "pre_tokenizer.pretokenizers: not an array"},
      {Sequence({json{{"type", "Metaspace"}, {"replacement", "_"}}}),
       "pretokenizers[0].replacement: not U+2581"},
      {Sequence({json{{"type", "Metaspace"}, {"replacement", kSpaceMark}, {"prepend_scheme", "last"}}}),
       "pretokenizers[0].prepend_scheme: \"last\""},
      {Sequence({SplitStepOf("a", "Isolated"), json{{"type", "Metaspace"}, {"replacement", kSpaceMark}}}),
       "pretokenizers[1]: after another step"},
      {Sequence({SplitStepOf("[a&&b]", "Isolated")}),
       "pre_tokenizer.pretokenizers[0].pattern.Regex: offset 2"},
      {Sequence({SplitStepOf("(", "Isolated")}), "pre_tokenizer.pretokenizers[0].pattern.Regex"},
      {Sequence({SplitStepOf("a", "Sideways")}), "pre_tokenizer.pretokenizers[0].behavior"},
      {Sequence({kBytes}), "pre_tokenizer.pretokenizers[1]: a step after ByteLevel"},
      {Sequence({json{{"type", "Split"}, {"behavior", "Isolated"}}}), "pattern: not an object"},
      {Sequence(std::vector<json>(100, SplitStepOf("a", "Isolated"))), "too many steps"},
      {Sequence({json{{"type", "Sequence"}, {"pretokenizers", {json{{"type", "Nope"}}}}}}),
       "pre_tokenizer.pretokenizers[0].pretokenizers[0]"},
  };
  for (const auto& [description, message] : cases) {
    const auto loaded = LoadPreTokenizer(description);
    ASSERT_FALSE(loaded) << description;
    EXPECT_EQ(loaded.error().code, api::ErrorCode::kBadModel);
    EXPECT_THAT(loaded.error().message, HasSubstr(message));
  }
}

TEST(PreTokenizer, SaysWhetherTheVocabularyIsOfBytes) {
  EXPECT_TRUE(LoadPreTokenizer(kBytes)->byte_level);
  EXPECT_FALSE(LoadPreTokenizer(nullptr)->byte_level);
  EXPECT_FALSE(LoadPreTokenizer({{"type", "Sequence"}, {"pretokenizers", json::array()}})->byte_level);
}

TEST(PreTokenizer, MetaspaceBeginsAPieceAtEachMark) {
  const auto loaded =
      LoadPreTokenizer({{"type", "Metaspace"}, {"replacement", kSpaceMark}, {"prepend_scheme", "first"}});
  ASSERT_TRUE(loaded) << loaded.error().message;
  ASSERT_TRUE(loaded->mark_spaces);
  EXPECT_EQ(loaded->mark_spaces->prefix, MarkSpaces::Prefix::kAtStartOfText);
  EXPECT_THAT(Split(loaded->splits, "\u2581ab\u2581\u2581c"), ElementsAre("\u2581ab", "\u2581", "\u2581c"));
}

TEST(PreTokenizer, CutsWordsAtMarksBehindOtherCharacters) {
  const PreTokenizer words{.steps = {}, .cut_words = true};
  EXPECT_THAT(Split(words, "a\u2581b\u2581\u2581c\u2581"),
              ElementsAre("a", "\u2581b", "\u2581\u2581c", "\u2581"));
  EXPECT_THAT(Split(words, "\u2581\u2581"), ElementsAre("\u2581\u2581"));
  EXPECT_THAT(Split(words, "abc"), ElementsAre("abc"));
}

TEST(PreTokenizer, WhereAPatternGivesUpTheRestIsOnePiece) {
  const auto steps = PreTokenizerOf(Sequence({SplitStepOf(" |(?:a+)+(?:a+)+(?:a+)+$", "Isolated")}));
  const std::string run = std::string(100, 'a') + "b";
  EXPECT_THAT(Split(steps, "a " + run + " c"), testing::Contains(testing::HasSubstr(run)));
}

PreTokenizer Known(std::string_view name) {
  PreTokenizer pre_tokenizer;
  for (const std::string_view pattern : FindPreTokenizer(name)->patterns) {
    auto step = CompileSplit(pattern, Regex::Syntax::kOniguruma);
    EXPECT_TRUE(step) << name << ": " << step.error().message;
    if (step) pre_tokenizer.steps.push_back(*std::move(step));
  }
  return pre_tokenizer;
}

// By the rules that the names stand for in llama.cpp.
TEST(PreTokenizer, KnownNamesCutAsTheirModelsDo) {
  const char* const kText = "It's 12345 a1,b\n\nC++";
  EXPECT_THAT(Split(Known("gpt-2"), kText),
              ElementsAre("It", "'s", " 12345", " a", "1", ",", "b", "\n", "\n", "C", "++"));
  EXPECT_THAT(Split(Known("llama-bpe"), kText),
              ElementsAre("It", "'s", " ", "123", "45", " a", "1", ",b", "\n\n", "C", "++"));
  EXPECT_THAT(Split(Known("deepseek-r1-qwen"), kText),
              ElementsAre("It", "'s", " ", "1", "2", "3", "4", "5", " a", "1", ",b", "\n\n", "C", "++"));
  EXPECT_THAT(Split(Known("starcoder"), kText), ElementsAre("It", "'s", " ", "1", "2", "3", "4", "5", " a",
                                                            "1", ",", "b", "\n", "\n", "C", "++"));
  EXPECT_THAT(Split(Known("superbpe"), "1234567"), ElementsAre("1", "234", "567"));
  EXPECT_THAT(Split(Known("afmoe"), "1234567 12"), ElementsAre("1", "234", "567", " ", "12"));
  EXPECT_THAT(Split(Known("tiny_aya"), "12345"), ElementsAre("12", "345"));
  EXPECT_THAT(Split(Known("deepseek-v3"), "1234\u4E2D\u6587a"), ElementsAre("123", "4", "\u4E2D\u6587", "a"));
  EXPECT_THAT(Split(Known("kimi-k2"), "ab\u4E2D\u6587cd"), ElementsAre("ab", "\u4E2D\u6587", "cd"));
}

// The pieces of a long text are the text, whatever it consists of.
TEST(PreTokenizer, KnownPatternsTakeLongTextsOfAnything) {
  std::set<const std::string_view*> seen;  // most names are aliases
  for (const std::string_view name : KnownPreTokenizerNames()) {
    const auto patterns = FindPreTokenizer(name)->patterns;
    if (patterns.empty() || !seen.insert(patterns.data()).second) continue;
    const PreTokenizer pre_tokenizer = Known(name);
    for (const std::string_view unit :
         {" ", "\n", "a", "A", "7", "!", "\u4E2D", "\u0301", "\t ", " x", "'s", "\u00A0"}) {
      std::string text;
      while (text.size() < 300'000) text += unit;
      std::string joined;
      for (const std::string& piece : Split(pre_tokenizer, text)) joined += piece;
      EXPECT_TRUE(joined == text) << name << " on " << unit;
    }
  }
}

// Digits are grouped from the right in one pass: the pieces are those of the published patterns, which take
// time by the square of a number's length and give up on long ones.
TEST(PreTokenizer, DigitGroupsAreThoseOfTheirPatterns) {
  constexpr std::string_view kUnits[] = {"1", "22", "345", "7890123", "\u0663", "\u00BD",
                                         "a", "_",  " ",   ",",       "\u0301", "\u4E2D"};
  std::mt19937 draw(7);
  // The word boundary of the published pattern stands behind a digit: \b itself is not supported.
  constexpr std::pair<const char*, const char*> kPatterns[] = {
      {R"(\d{1,3}(?=(?:\d{3})*\b))", R"(\d{1,3}(?=(?:\d{3})*(?!\w)))"},
      {R"(\d{1,3}(?=(?:\d{3})*(?!\w)))", R"(\d{1,3}(?=(?:\d{3})*(?!\w)))"},
      {R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))", R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))"},
      {R"((?=(\d{3})+(?!\d)))", R"((?=(\d{3})+(?!\d)))"}};
  for (const auto& [pattern, reference] : kPatterns) {
    const PreTokenizer groups = PreTokenizerOf(Sequence({SplitStepOf(pattern, "Isolated")}));
    ASSERT_EQ(groups.steps.size(), 1u) << pattern;
    ASSERT_NE(groups.steps[0].groups, DigitGroups::kNone) << pattern;
    auto regex = Regex::Compile(reference, Regex::Syntax::kOniguruma);
    ASSERT_TRUE(regex) << regex.error().message;
    PreTokenizer slow;
    slow.steps.push_back({.regex = *std::move(regex)});
    for (int i = 0; i < 3000; ++i) {
      std::string text;
      for (auto parts = draw() % 12; parts > 0; --parts) text += kUnits[draw() % std::size(kUnits)];
      ASSERT_EQ(Split(groups, text), Split(slow, text)) << pattern << " on " << text;
    }
  }
}

TEST(PreTokenizer, DigitGroupsOfANumberOfAnyLength) {
  const std::string digits(3'000'001, '7');
  for (const char* name : {"tiny_aya", "superbpe", "afmoe"}) {
    const std::vector<std::string> pieces = Split(Known(name), digits);
    ASSERT_EQ(pieces.size(), 1'000'001u) << name;
    EXPECT_EQ(pieces.front(), "7") << name;
    EXPECT_EQ(pieces.back(), "777") << name;
  }
  // A letter behind it leaves such a number to the other patterns, which group from the left.
  EXPECT_EQ(Split(Known("tiny_aya"), digits + "a").front(), "777");
}

// A long text is not split to its end if its request is canceled, or has spent its time.
TEST(PreTokenizer, SplittingCountsAsWork) {
  const auto repeated = [](std::string_view word) {
    std::string text;
    for (int i = 0; i < 10'000; ++i) text += word;
    return text;
  };
  const PreTokenizer by_regex = PreTokenizerOf(Sequence({SplitStepOf(" ", "Isolated")}));
  PreTokenizer words;
  words.cut_words = true;
  const std::atomic<bool> canceled = true;
  const WorkBudget budget(std::chrono::hours(1), canceled);
  EXPECT_EQ(Split(by_regex, "a word").size(), 3U);
  EXPECT_THROW(Split(by_regex, repeated("word ")), WorkStopped);
  EXPECT_EQ(Split(words, "a word").size(), 1U);
  EXPECT_THROW(Split(words, repeated("\xE2\x96\x81word")), WorkStopped);
}

}  // namespace
}  // namespace quire::runner::tokenizer
