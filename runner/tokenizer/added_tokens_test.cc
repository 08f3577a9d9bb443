#include "runner/tokenizer/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace quire::runner::tokenizer {
namespace {

using testing::ElementsAre;

// "text", or "#id" for a token.
std::vector<std::string> Cut(const AddedTokenFinder& finder, const TrustedText& text) {
  std::vector<std::string> cuts;
  for (const Stretch& stretch : finder.Find(text)) {
    cuts.push_back(stretch.token ? "#" + std::to_string(*stretch.token)
                                 : std::string(text.text.substr(stretch.begin, stretch.end - stretch.begin)));
  }
  return cuts;
}

std::vector<std::string> Cut(const AddedTokenFinder& finder, std::string_view text, bool trusted = true) {
  TrustedText whole{.text = text, .runs = {}};
  whole.AddRun(text.size(), trusted);
  return Cut(finder, whole);
}

AddedTokenFinder Finder(std::vector<AddedToken> tokens) {
  AddedTokenFinder finder;
  for (AddedToken& token : tokens) finder.Add(std::move(token));
  return finder;
}

TEST(AddedTokens, LeftmostThenLongest) {
  const auto finder =
      Finder({{.id = 1, .content = "ab"}, {.id = 2, .content = "abcd"}, {.id = 3, .content = "bcde"}});
  EXPECT_THAT(Cut(finder, "xabcde"), ElementsAre("x", "#2", "e"));
  EXPECT_THAT(Cut(finder, "abcxabc"), ElementsAre("#1", "cx", "#1", "c"));
  EXPECT_THAT(Cut(finder, "abab"), ElementsAre("#1", "#1"));
  EXPECT_THAT(Cut(finder, ""), ElementsAre());
  EXPECT_THAT(Cut(AddedTokenFinder(), "abcd"), ElementsAre("abcd"));
}

TEST(AddedTokens, SpecialOnesNeedTrustOthersDoNot) {
  const auto finder = Finder({{.id = 1, .content = "<s>", .special = true}, {.id = 2, .content = "<think>"}});
  EXPECT_THAT(Cut(finder, "<s><think>", true), ElementsAre("#1", "#2"));
  EXPECT_THAT(Cut(finder, "<s><think>", false), ElementsAre("<s>", "#2"));
}

TEST(AddedTokens, AMatchMustLieInTrustedBytesEntirely) {
  const auto finder = Finder({{.id = 1, .content = "<s>", .special = true},
                              {.id = 2, .content = "<s><s>", .special = true},
                              {.id = 3, .content = "</s>", .special = true}});
  TrustedText text{.text = "<s><s></s>", .runs = {}};
  text.AddRun(4, true);
  text.AddRun(6, false);
  text.AddRun(6, true);  // an empty run is no border
  text.AddRun(10, true);
  EXPECT_THAT(Cut(finder, text), ElementsAre("#1", "<s>", "#3"));
  text.runs = {{.end = 3, .trusted = true}, {.end = 6, .trusted = true}, {.end = 10, .trusted = false}};
  EXPECT_THAT(Cut(finder, text), ElementsAre("#2", "</s>"));
}

TEST(AddedTokens, AForgedBeginningDoesNotHideATokenBehindIt) {
  const auto finder =
      Finder({{.id = 1, .content = "]>", .special = true}, {.id = 2, .content = "[x]", .special = true}});
  TrustedText text{.text = "[x]>", .runs = {}};
  text.AddRun(2, false);
  text.AddRun(4, true);
  EXPECT_THAT(Cut(finder, text), ElementsAre("[x", "#1"));
}

TEST(AddedTokens, StripsWhiteSpaceAround) {
  const auto finder =
      Finder({{.id = 1, .content = "<l>", .lstrip = true}, {.id = 2, .content = "<r>", .rstrip = true}});
  EXPECT_THAT(Cut(finder, "a \u3000\n<l> b"), ElementsAre("a", "#1", " b"));
  EXPECT_THAT(Cut(finder, "a <r> \u00A0\tb"), ElementsAre("a ", "#2", "b"));
  EXPECT_THAT(Cut(finder, "<r>  <l>"), ElementsAre("#2", "#1"));
  EXPECT_THAT(Cut(finder, "  <l>"), ElementsAre("#1"));
}

TEST(AddedTokens, SingleWordsStandAlone) {
  const auto finder = Finder({{.id = 1, .content = "cat", .single_word = true}});
  EXPECT_THAT(Cut(finder, "cat concat cats (cat)"), ElementsAre("#1", " concat cats (", "#1", ")"));
  EXPECT_THAT(Cut(finder, "\u00E9cat cat\u0301 cat_ cat\u3000"),
              ElementsAre("\u00E9cat cat\u0301 cat_ ", "#1", "\u3000"));
}

TEST(AddedTokens, TheFirstOfTwoWithOneContentStays) {
  EXPECT_THAT(Cut(Finder({{.id = 1, .content = "x"}, {.id = 2, .content = "x"}}), "x"), ElementsAre("#1"));
}

}  // namespace
}  // namespace quire::runner::tokenizer
