// What published files say in ways of their own: user-defined tokens, ends, markup, white space beside
// tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runner/tokenizer/detokenizer.h"
#include "runner/tokenizer/model_tokenizer.h"
#include "runner/tokenizer/published_markup.h"
#include "runner/tokenizer/testing/mini_tokenizer.h"
#include "runner/tokenizer/tokenizer.h"
#include "runner/weights/model_files.h"
#include "tests/data/test_data.h"

namespace quire::runner::tokenizer {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::ElementsAre;
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

constexpr int kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;

struct Entry {
  std::string text;
  int type = kNormal;
};

// A GGUF file's tokenizer of SentencePiece's BPE. The scores fall with the ids.
ordered_json Gguf(const std::vector<Entry>& entries, bool add_space_prefix) {
  ordered_json kv = {{"tokenizer.ggml.model", "llama"},
                     {"tokenizer.ggml.add_space_prefix", add_space_prefix},
                     {"tokenizer.ggml.tokens", ordered_json::array()},
                     {"tokenizer.ggml.scores", ordered_json::array()},
                     {"tokenizer.ggml.token_type", ordered_json::array()}};
  for (const Entry& entry : entries) {
    kv["tokenizer.ggml.tokens"].push_back(entry.text);
    kv["tokenizer.ggml.scores"].push_back(-static_cast<double>(kv["tokenizer.ggml.scores"].size()));
    kv["tokenizer.ggml.token_type"].push_back(entry.type);
  }
  return kv;
}

TokenizerPtr OfGguf(const ordered_json& kv) {
  auto tokenizer = Tokenizer::FromGguf(kv);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return tokenizer ? *tokenizer : nullptr;
}

TokenizerPtr OfJson(const json& document, const ordered_json& config = nullptr,
                    TokenId ids_max = Tokenizer::kNoIdsMax) {
  auto tokenizer = Tokenizer::FromTokenizerJson(document.dump(), config, ids_max);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return tokenizer ? *tokenizer : nullptr;
}

std::vector<TokenId> IdsOf(const TokenizerPtr& tokenizer, std::string_view text,
                           SpecialTokens special = SpecialTokens::kParse) {
  return tokenizer->Encode(text, special).value();
}

std::string TextBack(const TokenizerPtr& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer, Detokenizer::Special::kWrite, Detokenizer::StartAt::kMiddle);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.Append(id);
  return text + detokenizer.Flush();
}

std::vector<TokenId> Ends(const TokenizerPtr& tokenizer) {
  return {tokenizer->ends().begin(), tokenizer->ends().end()};
}

// As llama.cpp's converter writes Gemma's runs of spaces: user-defined, with spaces for marks.
TEST(PublishedSpellings, RunsOfSpacesOfAGgufAreOneToken) {
  const auto gemma = OfGguf(Gguf({{"<unk>", kUnknown},
                                  {"<bos>", kControl},
                                  {"<eos>", kControl},
                                  {"\u2581"},
                                  {"x"},
                                  {"  ", kUserDefined},
                                  {"    ", kUserDefined},
                                  {"\n\n", kUserDefined},
                                  {"<td>", kUserDefined}},
                                 false));
  EXPECT_THAT(IdsOf(gemma, "x    x"), ElementsAre(4, 6, 4));
  EXPECT_THAT(IdsOf(gemma, "x   x x"), ElementsAre(4, 5, 3, 4, 3, 4));
  EXPECT_THAT(IdsOf(gemma, "\n\n  <td>x", SpecialTokens::kAsText), ElementsAre(7, 5, 8, 4));
  EXPECT_THAT(IdsOf(gemma, "x\u2581\u2581x"), ElementsAre(4, 5, 4));  // marks that the text itself holds
  EXPECT_EQ(TextBack(gemma, {4, 6, 4}), "x    x");
}

// With a space before the text, user-defined tokens cut it, and each stretch gets one.
TEST(PublishedSpellings, UserDefinedTokensOfAGgufCutTheText) {
  const auto llama = OfGguf(Gguf({{"<unk>", kUnknown},
                                  {"<s>", kControl},
                                  {"</s>", kControl},
                                  {"\u2581"},
                                  {"x"},
                                  {"\u2581x"},
                                  {"<br>", kUserDefined},
                                  {"  ", kUserDefined}},
                                 true));
  EXPECT_THAT(IdsOf(llama, "x<br>x"), ElementsAre(5, 6, 5));
  EXPECT_THAT(IdsOf(llama, "x  x"), ElementsAre(5, 7, 5));
}

// Published Gemma directories spell runs of spaces with marks among their added tokens.
TEST(PublishedSpellings, AddedTokensOfADirectoryWriteMarksAsSpaces) {
  json document = {
      {"normalizer", {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}},
      {"decoder", {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", {{"\u2581", 0}, {"x", 1}, {"\u2581\u2581", 2}}},
        {"merges", json::array({json::array({"\u2581", "\u2581"})})}}},
      {"added_tokens", {Added(2, "\u2581\u2581", false), Added(3, "<s\u2581>")}}};
  const auto tokenizer = OfJson(document);
  EXPECT_THAT(IdsOf(tokenizer, "x  x"), ElementsAre(1, 2, 1));
  EXPECT_EQ(TextBack(tokenizer, {1, 2, 1, 3}), "x  x<s\u2581>");  // markup stays as it is written
}

// Old conversions of Llama: the text gets its space and marks first, and so do the tokens.
TEST(PublishedSpellings, NormalizedTokensBehindAPrependAreFoundWithIt) {
  json end = Added(4, "</s>");
  end["normalized"] = true;
  json document = {
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "Prepend"}, {"prepend", "\u2581"}},
          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", {{"\u2581", 0}, {"o", 1}, {"k", 2}, {"<", 3}, {"</s>", 4}, {"/", 5}, {"s", 6}, {">", 7}}},
        {"merges", json::array()}}},
      {"added_tokens", {end}}};
  const auto tokenizer = OfJson(document);
  EXPECT_THAT(IdsOf(tokenizer, "ok </s>"), ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(IdsOf(tokenizer, "</s>"), ElementsAre(4));
  EXPECT_THAT(IdsOf(tokenizer, "ok</s>"), ElementsAre(0, 1, 2, 3, 5, 6, 7));
  EXPECT_THAT(IdsOf(tokenizer, " </s>", SpecialTokens::kAsText), ElementsAre(0, 0, 3, 5, 6, 7));
  const std::vector<Segment> forged = {{"ok", true}, {" </s>", false}, {" </s>", true}};
  EXPECT_THAT(*tokenizer->EncodeSegments(forged), ElementsAre(0, 1, 2, 0, 3, 5, 6, 7, 4));
}

TEST(PublishedSpellings, TokensThatOnlyTheConfigurationKnowsLieBehindTheVocabulary) {
  json document = MiniTokenizer();  // ids 0 to 255
  document["added_tokens"] = {Added(256, "<s>")};
  const ordered_json config = {
      {"added_tokens_decoder",
       {{"258", {{"content", "<b>"}, {"special", false}}}, {"257", {{"content", "<a>"}, {"special", true}}}}},
      {"pad_token", "<pad>"},
      {"unk_token", "x"},  // an entry of the vocabulary stays what it is
      {"additional_special_tokens", {"<more>"}}};
  const auto tokenizer = OfJson(document, config);
  EXPECT_THAT(IdsOf(tokenizer, "<a><b><pad><more>x<s>"), ElementsAre(257, 258, 259, 260, 'x', 256));
  EXPECT_TRUE(tokenizer->IsSpecial(257) && !tokenizer->IsSpecial(258) && !tokenizer->IsSpecial('x'));
  // The model has no rows for more.
  const auto few = OfJson(document, config, 258);
  EXPECT_EQ(few->vocab_size(), 258);
  EXPECT_THAT(IdsOf(few, "<a><b>"), ElementsAre(257, '<', 'b', '>'));
}

TEST(PublishedSpellings, TheEosOfTheConfigurationEndsAnAnswer) {
  json document = MiniTokenizer();
  document["added_tokens"] = {Added(256, "<done>"), Added(257, "<|fim_pad|>", false),
                              Added(258, "</s>", false)};
  EXPECT_THAT(Ends(OfJson(document)), ElementsAre(257));  // "</s>" is a tag where it is not special
  EXPECT_THAT(Ends(OfJson(document, {{"eos_token", "<done>"}})), ElementsAre(256, 257));
}

ordered_json ByteLevelGguf(const std::vector<Entry>& markup) {
  ordered_json kv = {{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", "gpt-2"}};
  json mini = MiniTokenizer();
  std::vector<std::string> tokens(256);
  for (const auto& [text, id] : mini["model"]["vocab"].items()) tokens[id.get<size_t>()] = text;
  std::vector<int> types(256, kNormal);
  for (const Entry& entry : markup) {
    tokens.push_back(entry.text);
    types.push_back(entry.type);
  }
  kv["tokenizer.ggml.tokens"] = tokens;
  kv["tokenizer.ggml.token_type"] = types;
  kv["tokenizer.ggml.merges"] = ordered_json::array();
  return kv;
}

TEST(PublishedSpellings, EndsAndFimTokensOfAGgufAreMarkupWhateverTheirType) {
  const auto tokenizer = OfGguf(ByteLevelGguf({{"<|endoftext|>", kNormal},
                                               {"<|fim_prefix|>", kNormal},
                                               {"<|file_sep|>", kUserDefined},
                                               {"</s>", kNormal}}));
  EXPECT_THAT(IdsOf(tokenizer, "a<|endoftext|>b<|fim_prefix|>"), ElementsAre('a', 256, 'b', 257));
  EXPECT_EQ(IdsOf(tokenizer, "<|endoftext|>", SpecialTokens::kAsText).size(), 13);
  EXPECT_TRUE(tokenizer->IsSpecial(256));
  EXPECT_THAT(Ends(tokenizer), ElementsAre(256, 258));
}

TEST(PublishedSpellings, WhatClosesAChannelIsNoEnd) {
  const auto ends = [](const std::vector<std::string>& texts) {
    std::vector<Entry> markup;
    for (const std::string& text : texts) markup.push_back({text, kControl});
    return Ends(OfGguf(ByteLevelGguf(markup)));
  };
  EXPECT_THAT(ends({"<|end|>", "<|return|>", "<|call|>"}), ElementsAre(257, 258));  // Harmony
  EXPECT_THAT(ends({"<|end|>", "<|flush|>", "<|calls|>"}), ElementsAre(257, 258));  // Solar Open
  EXPECT_THAT(ends({"<|end|>", "<|flush|>", "<|call|>"}), ElementsAre(257, 258));
  EXPECT_THAT(ends({"<|end|>", "<|call|>"}), ElementsAre(256, 257));
}

TEST(PublishedSpellings, TokensOfPhi3TakeTheWhiteSpaceBehindThem) {
  ordered_json kv = Gguf({{"<unk>", kUnknown},
                          {"<s>", kControl},
                          {"</s>", kControl},
                          {"\u2581"},
                          {"x"},
                          {"<|user|>", kControl},
                          {"<|endoftext|>", kControl},
                          {"<0x0A>", kByte}},
                         false);
  EXPECT_THAT(IdsOf(OfGguf(kv), "<|user|>\nx"), ElementsAre(5, 7, 4));
  for (const char* name : {"Phi-3 Mini 4k", "my PHI3"}) {
    kv["general.name"] = name;
    const auto phi = OfGguf(kv);
    EXPECT_THAT(IdsOf(phi, "<|user|> \nx<s> x"), ElementsAre(5, 4, 1, 3, 4)) << name;
    EXPECT_THAT(IdsOf(phi, "<|endoftext|>\nx"), ElementsAre(6, 7, 4)) << name;
  }
}

TEST(PublishedSpellings, MaskTokensOfEncodersTakeTheWhiteSpaceBeforeThem) {
  EXPECT_TRUE(StripRules::Of({{"general.architecture", "nomic-bert-moe"}}).Before("<mask>"));
  EXPECT_TRUE(StripRules::Of({{"tokenizer.ggml.pre", "jina-v2-code"}}).Before("<mask>"));
  EXPECT_TRUE(StripRules::Of({{"general.architecture", "modern-bert"}}).Before("[MASK]"));
  EXPECT_FALSE(StripRules::Of({{"general.architecture", "bert"}}).Before("[MASK]"));
  EXPECT_FALSE(StripRules::Of({{"general.architecture", "bert"}}).Before(""));
}

TEST(PublishedSpellings, ChatsOfAGgufGetItsBos) {
  ordered_json kv = Gguf({{"<unk>", kUnknown}, {"<s>", kControl}, {"</s>", kControl}, {"x"}}, false);
  EXPECT_TRUE(OfGguf(kv)->add_bos_to_chats());
  kv["tokenizer.ggml.add_bos_token"] = false;
  EXPECT_FALSE(OfGguf(kv)->add_bos_to_chats());
  json document = MiniTokenizer();
  document["added_tokens"] = {Added(256, "<s>")};
  EXPECT_FALSE(OfJson(document, {{"bos_token", "<s>"}, {"add_bos_token", true}})->add_bos_to_chats());
}

std::set<TokenId> AllEnds(const weights::ModelFiles& files) {
  const auto tokenizer = LoadTokenizer(files);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  const std::vector<int32_t> named = files.end_of_generation_ids();
  std::set<TokenId> ends(named.begin(), named.end());
  if (tokenizer) ends.insert((*tokenizer)->ends().begin(), (*tokenizer)->ends().end());
  return ends;
}

TEST(PublishedSpellings, AGgufEndsWhereItsCheckpointDoes) {
  for (const std::filesystem::path& path : test_data::List("gguf")) {
    if (path.extension() != ".gguf") continue;
    const std::string family = path.stem().stem().string();
    const std::filesystem::path directory = test_data::Find("models/" + family);
    if (directory.empty()) continue;
    const auto gguf = weights::Open(path);
    const auto checkpoint = weights::Open(directory);
    ASSERT_TRUE(gguf && checkpoint) << family;
    EXPECT_EQ(AllEnds(**gguf), AllEnds(**checkpoint)) << family;
  }
}

}  // namespace
}  // namespace quire::runner::tokenizer
