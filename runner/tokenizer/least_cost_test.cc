// PLaMo 2's vocabulary as GGUF files have it: pieces with scores, the least cost, a token for each byte.
#include "runner/tokenizer/least_cost.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Scored = nlohmann::ordered_json;

constexpr api::TokenId kFirstByte = 1000;  // in tests of the model alone

std::vector<api::TokenId> LeastCostCut(const std::vector<LeastCostDefinition::Entry>& entries,
                                       std::string_view text) {
  LeastCostDefinition definition{.entries = entries};
  for (size_t byte = 0; byte < 256; ++byte) {
    definition.bytes[byte] = kFirstByte + static_cast<api::TokenId>(byte);
  }
  std::vector<api::TokenId> ids;
  LeastCostModel(definition).Encode(text, ids);
  return ids;
}

TEST(LeastCost, TakesTheCheapestCutNotTheLongestPieces) {
  const std::vector<LeastCostDefinition::Entry> entries = {
      {"a", -1, 1}, {"b", -1, 2}, {"ab", -3, 3}, {"abc", -2.5F, 4}, {"c", -0.4F, 5}};
  EXPECT_THAT(LeastCostCut(entries, "abc"), ElementsAre(1, 2, 5)) << "2.4, not 2.5";
  EXPECT_THAT(LeastCostCut(entries, "ab"), ElementsAre(1, 2));
  EXPECT_THAT(LeastCostCut({{"a", -1, 1}, {"b", -1, 2}, {"ab", -2, 3}}, "ab"), ElementsAre(3))
      << "equal: the longer one";
  EXPECT_THAT(LeastCostCut({{"a", -1, 1}, {"ab", -2, 2}, {"bc", -2, 3}, {"c", -1, 4}}, "abc"),
              ElementsAre(2, 4))
      << "equal: the longer one on the left";
  EXPECT_THAT(LeastCostCut({{"a", 2, 1}, {"aa", 1, 2}}, "aaa"), ElementsAre(1, 1, 1))
      << "a gain counts each time";
  EXPECT_THAT(LeastCostCut(entries, ""), ElementsAre());
}

TEST(LeastCost, CharactersWithoutAPieceAreBytes) {
  const std::vector<LeastCostDefinition::Entry> entries = {
      {"a", -1, 1}, {"ä", -3, 2}, {"z", -1500, 3}, {"y", -2000, 4}};
  EXPECT_THAT(LeastCostCut(entries, "aäa"), ElementsAre(1, 2, 1));
  EXPECT_THAT(LeastCostCut(entries, "aö"), ElementsAre(1, kFirstByte + 0xc3, kFirstByte + 0xb6));
  EXPECT_THAT(LeastCostCut(entries, "za"), ElementsAre(kFirstByte + 'z', 1)) << "bytes cost 1000";
  EXPECT_THAT(LeastCostCut(entries, "y"), ElementsAre(kFirstByte + 'y'));
  EXPECT_THAT(LeastCostCut(entries,
                           "\xef\xbb\xbf"
                           "a"),
              ElementsAre(1))
      << "a byte order mark";
}

// Nothing of it is text, and none is lost.
TEST(LeastCost, BrokenCharactersAreBytesToo) {
  const std::vector<LeastCostDefinition::Entry> entries = {{"a", -1, 1}};
  EXPECT_THAT(LeastCostCut(entries,
                           "\xe4"
                           "a"),
              ElementsAre(kFirstByte + 0xe4, 1));
  EXPECT_THAT(LeastCostCut(entries, "a\x80\x80"), ElementsAre(1, kFirstByte + 0x80, kFirstByte + 0x80));
  EXPECT_THAT(LeastCostCut(entries, "\xf0\x9f"), ElementsAre(kFirstByte + 0xf0, kFirstByte + 0x9f));
}

// Ids: 0 to 3 markup, 4 to 259 the bytes, then some pieces.
Scored Plamo() {
  Scored tokens = {"<|plamo:unk|>", "<|plamo:bos|>", "<|plamo:eos|>", "<|plamo:pad|>"}, types = {2, 3, 3, 3};
  Scored scores = {0.0, 0.0, 0.0, 0.0};
  const auto add = [&](const std::string& text, int type, double score) {
    tokens.push_back(text);
    types.push_back(type);
    scores.push_back(score);
  };
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), 6, 0);
  add("Hel", 1, -4);
  add("Hello", 1, -9);
  add("lo", 1, -4);
  add(" ", 1, -2);
  add("</s>", 1, -8);
  return {{"tokenizer.ggml.model", "plamo2"},    {"tokenizer.ggml.tokens", tokens},
          {"tokenizer.ggml.scores", scores},     {"tokenizer.ggml.token_type", types},
          {"tokenizer.ggml.bos_token_id", 1U},   {"tokenizer.ggml.eos_token_id", 2U},
          {"tokenizer.ggml.add_bos_token", true}};
}

TEST(LeastCost, ReadsTheVocabularyOfAGguf) {
  const auto tokenizer = Tokenizer::FromGguf(Plamo());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto encode = [&](std::string_view text, SpecialTokens special) {
    return (*tokenizer)->Encode(text, special).value();
  };
  const std::string text = "Hello </s>\n€";
  const std::vector<TokenId> ids = encode(text, SpecialTokens::kAsText);
  EXPECT_THAT(ids, ElementsAre(260, 262, 263, 264, 4 + '\n', 4 + 0xe2, 4 + 0x82, 4 + 0xac));
  std::string back;
  for (const TokenId id : ids) back += (*tokenizer)->TokenBytes(id);
  EXPECT_EQ(back, text);
  EXPECT_THAT(encode("<|plamo:eos|>lo", SpecialTokens::kParse), ElementsAre(2, 262));
  EXPECT_EQ(encode("<|plamo:eos|>", SpecialTokens::kAsText).size(), 13U) << "what somebody types is text";
  EXPECT_TRUE((*tokenizer)->add_bos());
  EXPECT_EQ((*tokenizer)->eos_id(), 2);
}

TEST(LeastCost, RefusesAVocabularyThatLacksSomething) {
  Scored plamo = Plamo();
  plamo["tokenizer.ggml.scores"].erase(3);
  EXPECT_THAT(Tokenizer::FromGguf(plamo).error().message, HasSubstr("scores"));
  plamo = Plamo();
  plamo["tokenizer.ggml.tokens"][4 + 'x'] = "<0xZZ>";
  EXPECT_THAT(Tokenizer::FromGguf(plamo).error().message, HasSubstr("tokens[124]"));
  plamo = Plamo();
  plamo["tokenizer.ggml.token_type"][4 + 'x'] = 1;
  EXPECT_THAT(Tokenizer::FromGguf(plamo).error().message, HasSubstr("byte"));
}

}  // namespace
}  // namespace quire::runner::tokenizer
