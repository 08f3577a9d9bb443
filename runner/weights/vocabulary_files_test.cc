// Vocabularies that are no tokenizer.json, as one: made by hand. What they encode is compared in
// tokenizer_golden_test.cc.
#include "runner/weights/vocabulary_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "runner/weights/testing/hostile_files.h"

namespace quire::runner::weights {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;

class VocabularyFiles : public ::testing::Test {
 protected:
  json Read(const std::string& model_type = "mistral") {
    auto text = ReadOtherVocabulary(ModelSource(directory_.path()), model_type, config_);
    EXPECT_TRUE(text) << text.error().message;
    return text && *text ? json::parse(**text) : json();
  }
  api::Error Refused(const std::string& model_type = "mistral") {
    auto text = ReadOtherVocabulary(ModelSource(directory_.path()), model_type, config_);
    EXPECT_FALSE(text) << "accepted";
    return text ? api::Error{} : text.error();
  }
  // Tokens "a", "b", "ab", " ab"; byte tokens are not needed.
  static json Tekken() {
    json document = {
        {"config", {{"pattern", "\\s+|\\w+"}, {"default_vocab_size", 7}, {"default_num_special_tokens", 3}}}};
    const char* bytes[] = {"YQ==", "Yg==", "YWI=", "IGFi"};
    for (int i = 0; i < 4; ++i) document["vocab"].push_back({{"rank", i}, {"token_bytes", bytes[i]}});
    return document;
  }
  void Write(const json& document) { directory_.Write("tekken.json", document.dump()); }

  TemporaryDirectory directory_;
  ordered_json config_;
};

TEST_F(VocabularyFiles, AreNotRequired) { EXPECT_TRUE(Read().is_null()); }

TEST_F(VocabularyFiles, TekkensSpecialTokensHaveTheFirstIds) {
  Write(Tekken());
  const json tokenizer = Read();
  const json& model = tokenizer["model"];
  EXPECT_EQ(model["vocab"],
            json({{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {"a", 3}, {"b", 4}, {"ab", 5}, {"Ġab", 6}}));
  EXPECT_EQ(model["merges"], json({"a b"}));
  EXPECT_EQ(tokenizer["added_tokens"][1]["content"], "<s>");
  EXPECT_EQ(tokenizer["added_tokens"][1]["special"], true);
  EXPECT_EQ(tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"], "\\s+|\\w+");
  EXPECT_EQ(tokenizer["post_processor"]["special_tokens"]["<s>"]["ids"], json({1}));
  EXPECT_EQ(config_["eos_token"], "</s>");
}

TEST_F(VocabularyFiles, TekkenNamesItsSpecialTokensOrLeavesThemFree) {
  json document = Tekken();
  document["config"]["default_vocab_size"] = 5;  // the tokens beyond are not the model's
  document["special_tokens"] = {{{"rank", 0}, {"token_str", "<x>"}, {"is_control", true}}};
  Write(document);
  config_ = {{"bos_token", "<x>"}};
  EXPECT_EQ(Read()["model"]["vocab"],
            json({{"<x>", 0}, {"<SPECIAL_1>", 1}, {"<SPECIAL_2>", 2}, {"a", 3}, {"b", 4}}));
  EXPECT_EQ(config_["bos_token"], "<x>");
}

TEST_F(VocabularyFiles, MergesAreInTheOrderOfRanks) {
  json document = Tekken();
  document["config"]["default_vocab_size"] = 8;
  document["vocab"][3]["token_bytes"] = "YWFi";                             // "aab" = a + ab
  document["vocab"].push_back({{"rank", 4}, {"token_bytes", "YWFiYg=="}});  // "aabb" = aab + b
  Write(document);
  EXPECT_EQ(Read()["model"]["merges"], json({"a b", "a ab", "aab b"}));
}

TEST_F(VocabularyFiles, AHostileTekkenIsRefusedByItsField) {
  const auto expect = [&](const json& document, const char* field) {
    Write(document);
    const api::Error error = Refused();
    EXPECT_EQ(error.code, api::ErrorCode::kBadModel);
    EXPECT_THAT(error.message, HasSubstr("tekken.json"));
    EXPECT_THAT(error.message, HasSubstr(field));
  };
  expect(json::array(), "config");
  for (const auto& [field, value] :
       std::initializer_list<std::pair<const char*, json>>{{"default_vocab_size", -1},
                                                           {"default_vocab_size", 4'000'000'000},
                                                           {"default_num_special_tokens", 8}}) {
    json document = Tekken();
    document["config"][field] = value;
    expect(document, field);
  }
  json document = Tekken();
  document["vocab"][2]["rank"] = 3;
  expect(document, "vocab[2]");
  document = Tekken();
  document["vocab"][2]["token_bytes"] = "YQ==";
  expect(document, "vocab[2]");
  for (const std::string& bytes : {std::string("?"), std::string(), std::string(4096, 'Y')}) {
    document = Tekken();
    document["vocab"][1]["token_bytes"] = bytes;
    expect(document, "vocab[1].token_bytes");
  }
  document = Tekken();
  document["special_tokens"] = {{{"rank", 3}, {"token_str", "<x>"}}};
  expect(document, "special_tokens");
}

TEST_F(VocabularyFiles, PairsOfWordsAreReadAsTheirClassDoes) {
  directory_.Write("vocab.json", R"({"a":0,"b":1,"ab":2,"<|endoftext|>":3})");
  EXPECT_TRUE(Read("gpt2").is_null());  // one alone is no vocabulary
  directory_.Write("merges.txt", "#version: 0.2\r\na b\r\n");
  const json gpt2 = Read("gpt2");
  EXPECT_EQ(gpt2["model"]["merges"], json({"a b"}));
  EXPECT_EQ(gpt2["model"]["vocab"]["ab"], 2);
  EXPECT_EQ(gpt2["pre_tokenizer"]["use_regex"], true);
  EXPECT_EQ(config_["eos_token"], "<|endoftext|>");
  config_ = {{"tokenizer_class", "Qwen2TokenizerFast"}};
  directory_.Write("added_tokens.json", R"({"<|im_end|>":4})");
  const json qwen = Read();
  EXPECT_EQ(qwen["normalizer"]["type"], "NFC");
  EXPECT_EQ(qwen["added_tokens"][0]["id"], 4);
  config_ = {{"tokenizer_class", "RobertaTokenizer"}, {"add_prefix_space", true}};
  EXPECT_EQ(Read()["post_processor"]["type"], "RobertaProcessing");
  EXPECT_EQ(Read()["pre_tokenizer"]["add_prefix_space"], true);
  config_ = {{"tokenizer_class", "CLIPTokenizer"}};
  EXPECT_EQ(Refused().code, api::ErrorCode::kUnsupported);
  EXPECT_THAT(Refused().message, HasSubstr("CLIPTokenizer"));
  config_ = {{"tokenizer_class", "GPT2Tokenizer"}};
  directory_.Write("added_tokens.json", R"({"x":-1})");
  EXPECT_THAT(Refused().message, HasSubstr("added_tokens.json"));
  directory_.Write("vocab.json", "[]");
  EXPECT_THAT(Refused().message, HasSubstr("vocab.json"));
}

}  // namespace
}  // namespace quire::runner::weights
