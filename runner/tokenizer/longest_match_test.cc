// RWKV's vocabulary as GGUF files have it: escaped bytes, the longest match, an end of turn that texts
// contain.
#include "runner/tokenizer/longest_match.h"

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
using Json = nlohmann::ordered_json;

TEST(LongestMatch, TakesTheLongestTokenFromTheLeft) {
  const LongestMatchModel model(
      {.entries = {{"a", 1}, {"ab", 2}, {"abcd", 3}, {"bc", 4}, {"c", 5}}, .unknown = 9});
  const auto encode = [&](std::string_view text) {
    std::vector<api::TokenId> ids;
    model.Encode(text, ids);
    return ids;
  };
  EXPECT_THAT(encode("abcd"), ElementsAre(3));
  EXPECT_THAT(encode("abca"), ElementsAre(2, 5, 1)) << "abc leads to no token: back to ab";
  EXPECT_THAT(encode("bca"), ElementsAre(4, 1));
  EXPECT_THAT(encode("azb"), ElementsAre(1, 9, 9)) << "b alone is no token";
  EXPECT_THAT(encode(""), ElementsAre());
}

// Ids: 0 <s>, 1 to 256 the bytes, then some words.
Json World() {
  Json tokens = {"<s>"}, types = {3};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr const char* kDigits = "0123456789abcdef";
    std::string text = {static_cast<char>(byte)};
    if (byte < 32 || byte > 126) text = std::string("\\x") + kDigits[byte >> 4] + kDigits[byte & 15];
    if (byte == '\t') text = "\\t";
    if (byte == '\n') text = "\\n";
    if (byte == '\r') text = "\\r";
    if (byte == '\\') text = "\\\\";
    tokens.push_back(text);
    types.push_back(1);
  }
  for (const char* word : {"\\n\\n", "User", "it\\'s", "\\xe4\\xbd", "\\xe4\\xbd\\xa0", ":"}) {
    tokens.push_back(word);
    types.push_back(1);
  }
  return {{"tokenizer.ggml.model", "rwkv"},     {"tokenizer.ggml.tokens", tokens},
          {"tokenizer.ggml.token_type", types}, {"tokenizer.ggml.bos_token_id", 0U},
          {"tokenizer.ggml.eos_token_id", 0U},  {"tokenizer.ggml.eot_token_id", 257U}};
}

TEST(LongestMatch, ReadsTheVocabularyOfAGguf) {
  const auto tokenizer = Tokenizer::FromGguf(World());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto encode = [&](std::string_view text, SpecialTokens special) {
    return (*tokenizer)->Encode(text, special).value();
  };
  const std::string text = "User: it's 你\n\n\\x";
  const std::vector<TokenId> ids = encode(text, SpecialTokens::kAsText);
  EXPECT_THAT(ids, ElementsAre(258, 262, 1 + ' ', 259, 1 + ' ', 261, 257, 1 + '\\', 1 + 'x'));
  std::string back;
  for (const TokenId id : ids) back += (*tokenizer)->TokenBytes(id);
  EXPECT_EQ(back, text);
  EXPECT_FALSE((*tokenizer)->IsSpecial(257)) << "it ends a turn, and it is two line breaks";
  EXPECT_THAT(encode("<s>a", SpecialTokens::kParse), ElementsAre(0, 1 + 'a'));
  EXPECT_THAT(encode("<s>", SpecialTokens::kAsText), ElementsAre(1 + '<', 1 + 's', 1 + '>'));
  EXPECT_EQ((*tokenizer)->bos_id(), 0);
  EXPECT_FALSE((*tokenizer)->add_bos());
}

TEST(LongestMatch, RefusesAnEscapeThatIsNone) {
  for (const char* text : {"\\x4", "\\xg0", "\\"}) {
    Json world = World();
    world["tokenizer.ggml.tokens"][258] = text;
    const auto tokenizer = Tokenizer::FromGguf(world);
    ASSERT_FALSE(tokenizer) << text;
    EXPECT_THAT(tokenizer.error().message, HasSubstr("tokens[258]"));
  }
}

}  // namespace
}  // namespace quire::runner::tokenizer
