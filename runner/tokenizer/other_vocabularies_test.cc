// The vocabularies of the fixtures as vocab.json with merges.txt and as tekken.json: the ids of their
// tokenizer.json.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runner/tokenizer/byte_level.h"
#include "runner/tokenizer/testing/fixture_files.h"
#include "runner/tokenizer/tokenizer.h"
#include "runner/weights/testing/hostile_files.h"
#include "runner/weights/vocabulary_files.h"
#include "tests/data/test_data.h"

namespace quire::runner::tokenizer {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string ToBase64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char byte : bytes) {
    bits = bits << 8U | static_cast<uint8_t>(byte);
    for (count += 8; count >= 6;) out += kDigits[bits >> (count -= 6) & 63U];
    bits &= 0xFFU;
  }
  if (count > 0) out += kDigits[bits << (6 - count) & 63U];
  while (out.size() % 4 != 0) out += '=';
  return out;
}

class OtherVocabularies : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    QUIRE_FIND_OR_SKIP(directory, "tokenizers");
    golden_ = json::parse(ReadFile(directory / (std::string(GetParam()) + ".json")));
    published_ = ordered_json::parse(ReadFile(directory / (std::string(GetParam()) + ".tokenizer.json")));
  }

  // Every text of the fixtures has their ids plus `moved`.
  void ExpectIds(ordered_json config, const std::string& model_type, TokenId moved) {
    auto text = weights::ReadOtherVocabulary(weights::ModelSource(files_.path()), model_type, config);
    ASSERT_TRUE(text && *text) << (text ? "nothing" : text.error().message);
    const auto tokenizer = Tokenizer::FromTokenizerJson(**text, config);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    ASSERT_FALSE(golden_["cases"].empty());
    for (const json& one : golden_["cases"]) {
      auto expected = one["ids"].get<std::vector<TokenId>>();
      for (TokenId& id : expected) id += moved;
      const auto ids = (*tokenizer)->Encode(one["text"].get<std::string>(), SpecialTokens::kAsText);
      ASSERT_TRUE(ids);
      EXPECT_EQ(*ids, expected) << one["text"].dump();
    }
  }

  weights::testing::TemporaryDirectory files_;
  json golden_;
  ordered_json published_;
};

class WordPairVocabularies : public OtherVocabularies {};

TEST_P(WordPairVocabularies, HaveTheIdsOfTheirTokenizerJson) {
  files_.Write("vocab.json", published_["model"]["vocab"].dump());
  std::string merges = "#version: 0.2\n";
  for (const ordered_json& merge : published_["model"]["merges"]) {
    merges += merge.is_string() ? merge.get<std::string>()
                                : merge[0].get<std::string>() + ' ' + merge[1].get<std::string>();
    merges += '\n';
  }
  files_.Write("merges.txt", merges);
  const bool qwen = std::string_view(GetParam()) == "bpe_qwen2";
  ExpectIds({{"tokenizer_class", qwen ? "Qwen2Tokenizer" : "GPT2Tokenizer"}}, "", 0);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, WordPairVocabularies, ::testing::Values("bpe_gpt2", "bpe_qwen2"),
                         [](const auto& test) { return std::string(test.param); });

class TekkenVocabularies : public OtherVocabularies {};

TEST_P(TekkenVocabularies, HaveTheIdsOfTheirTokenizerJsonBehindTheSpecialTokens) {
  constexpr TokenId kSpecials = 20;
  const ordered_json& vocabulary = published_["model"]["vocab"];
  std::vector<std::string> tokens(vocabulary.size());
  for (const auto& [text, id] : vocabulary.items()) tokens.at(id.get<size_t>()) = FromByteLevel(text).value();
  json document = {{"config",
                    {{"pattern", golden_["regex"]},
                     {"default_vocab_size", tokens.size() + kSpecials},
                     {"default_num_special_tokens", kSpecials}}}};
  for (size_t i = 0; i < tokens.size(); ++i)
    document["vocab"].push_back({{"rank", i}, {"token_bytes", ToBase64(tokens[i])}});
  files_.Write("tekken.json", document.dump());
  ExpectIds(nullptr, "mistral", kSpecials);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, TekkenVocabularies, ::testing::Values("bpe_tekken", "bpe_o200k"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace quire::runner::tokenizer
