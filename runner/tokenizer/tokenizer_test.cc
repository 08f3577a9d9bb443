#include "runner/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "runner/tokenizer/detokenizer.h"
#include "runner/tokenizer/testing/mini_tokenizer.h"

namespace quire::runner::tokenizer {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::ElementsAre;

std::shared_ptr<const Tokenizer> Load(const json& document, const ordered_json& config = nullptr) {
  auto tokenizer = Tokenizer::FromTokenizerJson(document.dump(), config);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return tokenizer ? *tokenizer : nullptr;
}

std::vector<TokenId> Encode(const Tokenizer& tokenizer, std::string_view text,
                            SpecialTokens special = SpecialTokens::kParse) {
  auto ids = tokenizer.Encode(text, special);
  EXPECT_TRUE(ids);
  return ids ? *ids : std::vector<TokenId>{};
}

std::vector<TokenId> EncodeSegments(const Tokenizer& tokenizer, const std::vector<Segment>& segments) {
  auto ids = tokenizer.EncodeSegments(segments);
  EXPECT_TRUE(ids);
  return ids ? *ids : std::vector<TokenId>{};
}

// 256 = "ab"
json WithMerges() { return MiniTokenizer({{"a", "b"}}); }

TEST(Tokenizer, TextMergesAcrossSegmentBorders) {
  json document = WithMerges();
  document["added_tokens"] = {Added(300, "<s>")};
  const auto tokenizer = Load(document);
  EXPECT_THAT(Encode(*tokenizer, "ab ab"), ElementsAre(256, ' ', 256));
  EXPECT_THAT(EncodeSegments(*tokenizer, {{"a", true}, {"b", false}, {"", true}, {" ", false}, {"ab", true}}),
              ElementsAre(256, ' ', 256));
  EXPECT_THAT(EncodeSegments(*tokenizer, {{"<s>a", true}, {"b<s>", false}, {"<s>", true}}),
              ElementsAre(300, 256, '<', 's', '>', 300));
  EXPECT_THAT(EncodeSegments(*tokenizer, {{"<s", true}, {">", false}}), ElementsAre('<', 's', '>'));
  EXPECT_THAT(EncodeSegments(*tokenizer, {}), ElementsAre());
}

TEST(Tokenizer, SpecialTokensAreTextUnlessTrusted) {
  json document = WithMerges();
  document["added_tokens"] = {Added(300, "<s>"), Added(301, "<think>", false)};
  const auto tokenizer = Load(document);
  EXPECT_THAT(Encode(*tokenizer, "<s><think>", SpecialTokens::kParse), ElementsAre(300, 301));
  EXPECT_THAT(Encode(*tokenizer, "<s><think>", SpecialTokens::kAsText), ElementsAre('<', 's', '>', 301));
  EXPECT_TRUE(tokenizer->IsSpecial(300));
  EXPECT_FALSE(tokenizer->IsSpecial(301));
  EXPECT_EQ(tokenizer->TokenBytes(301), "<think>");
}

// With ignore_merges a whole piece is looked up in the vocabulary: not a way to a special token.
TEST(Tokenizer, IgnoreMergesDoesNotReachSpecialTokens) {
  json document = WithMerges();
  document["model"]["vocab"]["xyz"] = 300;
  document["model"]["vocab"]["pad"] = 301;
  document["model"]["ignore_merges"] = true;
  document["added_tokens"] = {Added(301, "pad")};
  const auto tokenizer = Load(document);
  EXPECT_THAT(Encode(*tokenizer, "xyz", SpecialTokens::kAsText), ElementsAre(300));
  EXPECT_THAT(Encode(*tokenizer, "pad", SpecialTokens::kAsText), ElementsAre('p', 'a', 'd'));
  EXPECT_THAT(Encode(*tokenizer, "pad", SpecialTokens::kParse), ElementsAre(301));
  document["model"]["ignore_merges"] = false;
  EXPECT_THAT(Encode(*Load(document), "xyz"), ElementsAre('x', 'y', 'z'));
}

TEST(Tokenizer, AddPrefixSpaceBeginsEachStretch) {
  json document = WithMerges();
  document["pre_tokenizer"]["add_prefix_space"] = true;
  document["added_tokens"] = {Added(300, "<s>")};
  const auto tokenizer = Load(document);
  EXPECT_THAT(Encode(*tokenizer, "ab<s>ab<s> ab"), ElementsAre(' ', 256, 300, ' ', 256, 300, ' ', 256));
  EXPECT_THAT(Encode(*tokenizer, ""), ElementsAre());
}

TEST(Tokenizer, NormalizedTokensAreFoundAfterNormalization) {
  json document = MiniTokenizer();
  document["normalizer"] = {{"type", "NFC"}};
  json caf = Added(300, "caf\u00E9", false);
  caf["normalized"] = true;
  json special = Added(301, "<\u00E9>");
  special["normalized"] = true;
  document["added_tokens"] = {caf, special, Added(302, "<e\u0301!>")};
  const auto tokenizer = Load(document);
  EXPECT_THAT(Encode(*tokenizer, "cafe\u0301"), ElementsAre(300));
  EXPECT_THAT(Encode(*tokenizer, "<e\u0301!>"), ElementsAre(302));
  EXPECT_THAT(Encode(*tokenizer, "<\u00E9!>"), ElementsAre('<', 0xC3, 0xA9, '!', '>'));
  EXPECT_THAT(Encode(*tokenizer, "<e\u0301>", SpecialTokens::kParse), ElementsAre(301));
  EXPECT_THAT(Encode(*tokenizer, "<e\u0301>", SpecialTokens::kAsText), ElementsAre('<', 0xC3, 0xA9, '>'));
  EXPECT_THAT(EncodeSegments(*tokenizer, {{"e\u0301", false}, {"<e\u0301>", true}, {"o\u0301", false}}),
              ElementsAre(0xC3, 0xA9, 301, 0xC3, 0xB3));
  // The user's accent lands on the template's letter.
  EXPECT_THAT(EncodeSegments(*tokenizer, {{"<e", true}, {"\u0301", false}, {">", true}}),
              ElementsAre('<', 0xC3, 0xA9, '>'));
}

TEST(Tokenizer, InvalidUtf8CountsAsReplacementCharacters) {
  const auto tokenizer = Load(WithMerges());
  EXPECT_THAT(Encode(*tokenizer, "a\xFF\xF0\x9F"), ElementsAre('a', 0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD));
  EXPECT_THAT(EncodeSegments(*tokenizer, {{"\xC3", true}, {"\xA9", false}}), ElementsAre(0xC3, 0xA9));
}

TEST(Tokenizer, TooMuchTextIsRefused) {
  const auto tokenizer = Load(WithMerges());
  const std::string megabyte(1 << 20, 'a');
  const std::vector<Segment> segments(2048, Segment{megabyte, false});
  const auto ids = tokenizer->EncodeSegments(segments);
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code, api::ErrorCode::kTooLarge);
}

TEST(Tokenizer, BosAndEosComeFromTheTemplate) {
  json document = WithMerges();
  document["added_tokens"] = {Added(300, "<s>"), Added(301, "</s>")};
  document["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single",
          {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
           {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
           {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}}}},
         {"special_tokens", {{"<s>", {{"ids", {300}}}}, {"</s>", {{"ids", {301}}}}}}}}}};
  const auto tokenizer = Load(document);
  EXPECT_TRUE(tokenizer->add_bos());
  EXPECT_TRUE(tokenizer->add_eos());
  EXPECT_EQ(tokenizer->bos_id(), 300);
  EXPECT_EQ(tokenizer->eos_id(), 301);
}

TEST(Tokenizer, BosAndEosOfTheConfig) {
  json document = WithMerges();
  document["added_tokens"] = {Added(300, "<s>")};
  document["model"]["vocab"]["END"] = 301;
  const ordered_json config = {
      {"bos_token", {{"content", "<s>"}}}, {"eos_token", "END"}, {"add_bos_token", true}};
  const auto tokenizer = Load(document, config);
  EXPECT_EQ(tokenizer->bos_id(), 300);
  EXPECT_EQ(tokenizer->eos_id(), 301);
  EXPECT_TRUE(tokenizer->add_bos());
  EXPECT_FALSE(tokenizer->add_eos());
  EXPECT_TRUE(tokenizer->IsSpecial(301));
  EXPECT_THAT(Encode(*tokenizer, "END"), ElementsAre(301));
  EXPECT_EQ(Load(document)->bos_id(), std::nullopt);
  // The file does not mark EOS as special; text must not encode to it anyway.
  document["added_tokens"].push_back(Added(301, "END", false));
  EXPECT_THAT(Encode(*Load(document, config), "END", SpecialTokens::kAsText), ElementsAre('E', 'N', 'D'));
}

TEST(Tokenizer, IdsThatDoNotExistAreEmpty) {
  json document = WithMerges();
  document["added_tokens"] = {Added(400, "<s>")};
  const auto tokenizer = Load(document);
  EXPECT_EQ(tokenizer->vocab_size(), 401);
  for (const TokenId id : {-1, 259, 399, 401, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer->TokenBytes(id), "");
    EXPECT_FALSE(tokenizer->IsSpecial(id));
  }
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.Append(-1), "");
  EXPECT_EQ(detokenizer.Append(0xC3), "");
  Detokenizer copy = detokenizer;
  EXPECT_EQ(copy.Append(0xA9), "\u00E9");
  EXPECT_EQ(detokenizer.Flush(), "\uFFFD");
}

// Repeated words take another way through the code than new ones.
TEST(Tokenizer, RepeatedWordsHaveTheSameIds) {
  const auto tokenizer = Load(WithMerges());
  const auto once = Encode(*tokenizer, " abba");
  std::string text;
  std::vector<TokenId> expected;
  for (int i = 0; i < 5000; ++i) {
    text += " abba " + std::to_string(i);
    expected.insert(expected.end(), once.begin(), once.end());
    expected.push_back(' ');
    for (const char c : std::to_string(i)) expected.push_back(c);
  }
  EXPECT_EQ(Encode(*tokenizer, text), expected);
}

}  // namespace
}  // namespace quire::runner::tokenizer
