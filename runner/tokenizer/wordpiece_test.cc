#include "runner/tokenizer/wordpiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/tokenizer/frame_tokens.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::tokenizer {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using Built = std::shared_ptr<const Tokenizer>;

// Ids are positions.
const std::vector<std::string> kEntries = {"[PAD]", "[UNK]",        "[CLS]",   "[SEP]", "un",
                                           "##aff", "##able",       "running", "!",     "\xC3\xA9",
                                           "e",     "\xE4\xB8\xAD", "##e"};

ordered_json DocumentOf(bool lowercase) {
  ordered_json vocab = ordered_json::object();
  for (size_t i = 0; i < kEntries.size(); ++i) vocab[kEntries[i]] = i;
  ordered_json added = ordered_json::array();
  for (size_t i = 0; i < 4; ++i) added.push_back({{"id", i}, {"content", kEntries[i]}, {"special", true}});
  return {{"added_tokens", added},
          {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", lowercase}, {"strip_accents", nullptr}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor", {{"type", "BertProcessing"}, {"sep", {"[SEP]", 3}}, {"cls", {"[CLS]", 2}}}},
          {"decoder", {{"type", "WordPiece"}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 20},
            {"vocab", vocab}}}};
}

Built FromJson(const ordered_json& document) {
  auto built = Tokenizer::FromTokenizerJson(document.dump(), ordered_json());
  EXPECT_TRUE(built) << built.error().message;
  return built.value_or(nullptr);
}

// The same vocabulary as llama.cpp writes it.
Built FromGguf(bool lowercase) {
  ordered_json tokens = ordered_json::array(), types = ordered_json::array();
  for (size_t i = 0; i < kEntries.size(); ++i) {
    const std::string& entry = kEntries[i];
    tokens.push_back(i < 4 ? entry : entry.starts_with("##") ? entry.substr(2) : "\xE2\x96\x81" + entry);
    types.push_back(i < 4 ? 3 : 1);
  }
  auto built = Tokenizer::FromGguf({{"tokenizer.ggml.model", "bert"},
                                    {"tokenizer.ggml.tokens", tokens},
                                    {"tokenizer.ggml.token_type", types},
                                    {"tokenizer.ggml.unknown_token_id", 1U},
                                    {"tokenizer.ggml.cls_token_id", 2U},
                                    {"tokenizer.ggml.seperator_token_id", 3U},
                                    {"tokenizer.ggml.normalizer.lowercase", lowercase}});
  EXPECT_TRUE(built) << built.error().message;
  return built.value_or(nullptr);
}

std::vector<TokenId> Ids(const Built& tokenizer, std::string_view text) {
  return tokenizer->Encode(text, SpecialTokens::kAsText).value_or(std::vector<TokenId>());
}

TEST(WordPiece, WordsAreTheLongestEntriesFromTheLeft) {
  for (const Built& tokenizer : {FromJson(DocumentOf(true)), FromGguf(true)}) {
    EXPECT_THAT(Ids(tokenizer, "Unaffable  RUNNING!!\n"), ElementsAre(4, 5, 6, 7, 8, 8));
    EXPECT_THAT(Ids(tokenizer, "unaffected"), ElementsAre(1)) << "no way to the end: all of it is unknown";
    EXPECT_THAT(Ids(tokenizer, std::string(101, 'e')), ElementsAre(1)) << "too long";
    EXPECT_THAT(Ids(tokenizer, "ee"), ElementsAre(10, 12));
    EXPECT_THAT(Ids(tokenizer,
                    "un\xE4\xB8\xAD"
                    "e"),
                ElementsAre(4, 11, 10))
        << "ideographs stand alone";
    EXPECT_THAT(Ids(tokenizer, "[CLS]"), testing::Not(testing::Contains(2))) << "nobody types markup";
    EXPECT_TRUE(tokenizer->add_bos());
    EXPECT_EQ(tokenizer->bos_id(), 2);
    EXPECT_EQ(tokenizer->eos_id(), 3);
  }
}

TEST(WordPiece, AccentsGoWithTheCase) {
  for (const Built& tokenizer : {FromJson(DocumentOf(true)), FromGguf(true)}) {
    EXPECT_THAT(Ids(tokenizer, "\xC3\x89"), ElementsAre(10));
  }
  for (const Built& tokenizer : {FromJson(DocumentOf(false)), FromGguf(false)}) {
    EXPECT_THAT(Ids(tokenizer, "\xC3\xA9"), ElementsAre(9));
    EXPECT_THAT(Ids(tokenizer, "Un"), ElementsAre(1));
  }
}

TEST(WordPiece, PairsAreFramedWithTypes) {
  for (const Built& tokenizer : {FromJson(DocumentOf(true)), FromGguf(true)}) {
    const auto pair = FramePair(*tokenizer, {4, 5}, {7, 8}, 100);
    ASSERT_TRUE(pair);
    EXPECT_THAT(pair->ids, ElementsAre(2, 4, 5, 3, 7, 8, 3));
    EXPECT_THAT(pair->types, ElementsAre(0, 0, 0, 0, 1, 1, 1));
    const auto cut = FramePair(*tokenizer, {4, 5}, {7, 8}, 6);
    ASSERT_TRUE(cut);
    EXPECT_THAT(cut->ids, ElementsAre(2, 4, 5, 3, 7, 3));
    EXPECT_EQ(cut->dropped, 1);
    EXPECT_FALSE(FramePair(*tokenizer, {}, {}, 2));
  }
}

TEST(WordPiece, RefusesByName) {
  ordered_json document = DocumentOf(true);
  document["model"].erase("continuing_subword_prefix");
  const auto built = Tokenizer::FromTokenizerJson(document.dump(), ordered_json());
  ASSERT_FALSE(built);
  EXPECT_THAT(built.error().message, HasSubstr("model.continuing_subword_prefix"));
  document = DocumentOf(true);
  document["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  const auto split = Tokenizer::FromTokenizerJson(document.dump(), ordered_json());
  ASSERT_FALSE(split);
  EXPECT_THAT(split.error().message, HasSubstr("WhitespaceSplit"));
}

}  // namespace
}  // namespace quire::runner::tokenizer
