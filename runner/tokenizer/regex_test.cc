#include "runner/tokenizer/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runner/tokenizer/regex_syntax.h"

namespace quire::runner::tokenizer {
namespace {

// The part of `text` that the pattern finds first, or "<none>".
std::string First(std::string_view pattern, std::string_view text,
                  Regex::Syntax syntax = Regex::Syntax::kOniguruma) {
  auto regex = Regex::Compile(pattern, syntax);
  EXPECT_TRUE(regex) << pattern << ": " << regex.error().message;
  if (!regex) return "";
  RegexMatcher matcher;
  const auto match = matcher.Find(*regex, text, 0);
  if (match.outcome != RegexMatcher::Outcome::kMatch) return "<none>";
  return std::string(text.substr(match.begin, match.end - match.begin));
}

TEST(Regex, SpaceIsUnicodeWhiteSpace) {
  EXPECT_EQ(First("\\s+", "a \t\u00A0\u0085\u3000\u2028b"), " \t\u00A0\u0085\u3000\u2028");
  // The Mongolian vowel separator is no white space, though PCRE2's own \s takes it for one.
  EXPECT_EQ(First("\\s", "\u180E"), "<none>");
  EXPECT_EQ(First("[\\s]", "\u180E"), "<none>");
  EXPECT_EQ(First("[^\\s]", "\u180E"), "\u180E");
  EXPECT_EQ(First("\\S", " \u180E"), "\u180E");
  EXPECT_EQ(First("[\\S]", " \u00A0x"), "x");
  EXPECT_EQ(First("\\u200b", "\u200B"), "\u200B");
}

TEST(Regex, WordsIncludeMarksAndConnectors) {
  EXPECT_EQ(First("\\w+", "-a\u0301_\u203F\u0967-"), "a\u0301_\u203F\u0967");
  EXPECT_EQ(First("[\\w]+", "-x1-"), "x1");
  EXPECT_EQ(First("\\W", "a\u0301-"), "-");
}

TEST(Regex, AnchorsAreThoseOfLines) {
  EXPECT_EQ(First("^b", "a\nb"), "b");
  EXPECT_EQ(First("a$", "a\nb"), "a");
  EXPECT_EQ(First("\\Ab", "a\nb"), "<none>");
}

TEST(Regex, VerticalTabAndCodePoints) {
  EXPECT_EQ(First("\\v", "\n\x0B"), "\x0B");
  EXPECT_EQ(First("[\\x{4e00}-\\u9fff]+", "a\u4E2D\u6587"), "\u4E2D\u6587");
  EXPECT_EQ(First("\\x41", "A"), "A");
}

TEST(Regex, LiteralsHaveNoSyntax) {
  EXPECT_EQ(First("a.[b]", "axb a.[b]", Regex::Syntax::kLiteral), "a.[b]");
}

TEST(Regex, WhatReadsDifferentlyIsRefused) {
  for (const char* pattern : {"[a&&b]",
                              "[a[bc]]",
                              "[[:alpha:]]",
                              "\\h",
                              "\\R",
                              "\\K",
                              "\\G",
                              "\\1",
                              "\\g<1>",
                              "\\b",
                              "(?m:a)",
                              "(?P<n>a)",
                              "a(?i)b|c",
                              "(*ACCEPT)",
                              "(*UTF)a",
                              "(?R)",
                              "(?(1)a)",
                              "(?#c)",
                              "a{,3}",
                              "a{2}+",
                              "a{x",
                              "[\\W]",
                              "[]a]",
                              "[a",
                              "\\",
                              "[\\s-x]",
                              "[a-\\s]",
                              "\\xE9",
                              "\\x{110000000}",
                              "\\p{L",
                              "\\pL",
                              "\\Q"}) {
    const auto result = TranslateOniguruma(pattern);
    ASSERT_FALSE(result) << pattern << " became " << *result;
    EXPECT_EQ(result.error().code, api::ErrorCode::kBadModel);
    EXPECT_THAT(result.error().message, testing::HasSubstr("offset "));
  }
}

TEST(Regex, WhatDoesNotCompileIsAnError) {
  for (const char* pattern :
       {"(", "a)", "\\p{Nonsense}", "*", "[b-a]", "(?<=a*)b", "(((a{1000}){1000}){1000})"}) {
    const auto result = Regex::Compile(pattern, Regex::Syntax::kOniguruma);
    ASSERT_FALSE(result) << pattern;
    EXPECT_EQ(result.error().code, api::ErrorCode::kBadModel);
    EXPECT_FALSE(result.error().message.empty());
  }
  EXPECT_FALSE(Regex::Compile(std::string(1 << 20, 'a'), Regex::Syntax::kOniguruma));
}

TEST(Regex, GivesUpOnExponentialPatterns) {
  auto regex = Regex::Compile("(?:a+)+(?:a+)+(?:a+)+$", Regex::Syntax::kOniguruma);
  ASSERT_TRUE(regex);
  RegexMatcher matcher;
  EXPECT_EQ(matcher.Find(*regex, std::string(100, 'a') + "b", 0).outcome, RegexMatcher::Outcome::kGaveUp);
}

TEST(Regex, NestedRepeatsOfLongTextFindRoom) {
  auto regex = Regex::Compile("(?:a|b)*c", Regex::Syntax::kOniguruma);
  ASSERT_TRUE(regex);
  RegexMatcher matcher;
  const std::string text = std::string(100'000, 'a') + "c";
  const auto match = matcher.Find(*regex, text, 0);
  EXPECT_EQ(match.outcome, RegexMatcher::Outcome::kMatch);
  EXPECT_EQ(match.end, text.size());
}

}  // namespace
}  // namespace quire::runner::tokenizer
