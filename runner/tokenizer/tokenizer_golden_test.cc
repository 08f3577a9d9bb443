// Ids and texts of Hugging Face tokenizers, of tokenizer.json files and of GGUF files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "runner/tokenizer/detokenizer.h"
#include "runner/tokenizer/testing/fixture_files.h"
#include "runner/tokenizer/tokenizer.h"
#include "runner/weights/model_files.h"
#include "tests/data/test_data.h"

namespace quire::runner::tokenizer {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

TokenizerPtr FromJsonFile(const std::filesystem::path& path, const ordered_json& config = nullptr) {
  auto tokenizer = Tokenizer::FromTokenizerJson(ReadFile(path), config);
  EXPECT_TRUE(tokenizer) << path << ": " << tokenizer.error().message;
  return tokenizer ? *tokenizer : nullptr;
}

TokenizerPtr FromGgufFile(const std::filesystem::path& path) {
  auto files = weights::Open(path);
  EXPECT_TRUE(files) << files.error().message;
  if (!files) return nullptr;
  auto tokenizer = Tokenizer::FromGguf((*files)->config());
  EXPECT_TRUE(tokenizer) << path << ": " << tokenizer.error().message;
  return tokenizer ? *tokenizer : nullptr;
}

std::vector<TokenId> EncodeGolden(const Tokenizer& tokenizer, std::string_view text, SpecialTokens special) {
  auto ids = tokenizer.Encode(text, special);
  EXPECT_TRUE(ids);
  return ids ? *std::move(ids) : std::vector<TokenId>{};
}

std::string DecodeGolden(const TokenizerPtr& tokenizer, const std::vector<TokenId>& ids,
                         Detokenizer::Special special = Detokenizer::Special::kWrite) {
  Detokenizer detokenizer(tokenizer, special);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.Append(id);
  return text + detokenizer.Flush();
}

void ExpectCases(const TokenizerPtr& tokenizer, const json& golden) {
  for (const json& c : golden["cases"]) {
    const auto text = c["text"].get<std::string>();
    SCOPED_TRACE(c["text"].dump());
    const auto ids = c["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(EncodeGolden(*tokenizer, text, SpecialTokens::kAsText), ids);
    auto framed = EncodeGolden(*tokenizer, text, SpecialTokens::kParse);
    const auto parsed = c.value("ids_parse_special", ids);
    EXPECT_EQ(framed, parsed);
    if (tokenizer->add_bos()) framed.insert(framed.begin(), *tokenizer->bos_id());
    if (tokenizer->add_eos()) framed.push_back(*tokenizer->eos_id());
    EXPECT_EQ(framed, c.value("ids_add_special", parsed));
    EXPECT_EQ(DecodeGolden(tokenizer, ids), c.value("decoded", text));
  }
}

void ExpectDecodes(const TokenizerPtr& tokenizer, const json& golden) {
  for (const json& c : golden["decode"]) {
    SCOPED_TRACE(c.dump());
    const auto ids = c["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(DecodeGolden(tokenizer, ids), c["text"].get<std::string>());
    EXPECT_EQ(DecodeGolden(tokenizer, ids, Detokenizer::Special::kSkip),
              c["text_skip_special"].get<std::string>());
    Detokenizer detokenizer(tokenizer);
    std::vector<std::string> stream;
    for (const TokenId id : ids) stream.push_back(detokenizer.Append(id));
    stream.push_back(detokenizer.Flush());
    EXPECT_EQ(stream, c["stream"].get<std::vector<std::string>>());
  }
  ASSERT_EQ(tokenizer->vocab_size(), golden["vocab_size"].get<int32_t>());
  for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
    std::string hex;
    for (const char c : tokenizer->TokenBytes(id)) {
      constexpr char kDigits[] = "0123456789abcdef";
      hex += kDigits[static_cast<uint8_t>(c) >> 4U];
      hex += kDigits[static_cast<uint8_t>(c) & 15U];
    }
    EXPECT_EQ(hex, golden["token_bytes_hex"][static_cast<size_t>(id)].get<std::string>()) << id;
  }
}

class BytePairGolden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    QUIRE_FIND_OR_SKIP(directory, "tokenizers");
    directory_ = directory;
    golden_ = json::parse(ReadFile(directory_ / (std::string(GetParam()) + ".json")));
    ASSERT_FALSE(golden_["cases"].empty());
  }
  std::filesystem::path directory_;
  json golden_;
};

TEST_P(BytePairGolden, TokenizerJsonGivesTheSameIdsAndTexts) {
  const auto tokenizer = FromJsonFile(directory_ / (std::string(GetParam()) + ".tokenizer.json"));
  ASSERT_TRUE(tokenizer);
  ExpectCases(tokenizer, golden_);
  ExpectDecodes(tokenizer, golden_);
  for (const json& special : golden_["special_tokens"]) {
    const auto ids = EncodeGolden(*tokenizer, special.get<std::string>(), SpecialTokens::kParse);
    ASSERT_EQ(ids.size(), 1U);
    EXPECT_TRUE(tokenizer->IsSpecial(ids[0]));
  }
}

// A segment border anywhere in a plain text changes nothing.
TEST_P(BytePairGolden, SegmentsOfAPlainTextGiveTheIdsOfTheWhole) {
  const auto tokenizer = FromJsonFile(directory_ / (std::string(GetParam()) + ".tokenizer.json"));
  ASSERT_TRUE(tokenizer);
  size_t number = 0;
  for (const json& c : golden_["cases"]) {
    if (c.contains("ids_parse_special")) continue;
    const auto text = c["text"].get<std::string>();
    const size_t cut = text.empty() ? 0 : (number++ * 7) % text.size();
    const std::vector<Segment> segments = {{std::string_view(text).substr(0, cut), true},
                                           {std::string_view(text).substr(cut), false}};
    const auto ids = tokenizer->EncodeSegments(segments);
    ASSERT_TRUE(ids);
    EXPECT_EQ(*ids, c["ids"].get<std::vector<TokenId>>()) << c["text"].dump() << " cut at " << cut;
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, BytePairGolden,
                         testing::Values("bpe_gpt2", "bpe_llama3", "bpe_qwen2", "bpe_qwen35", "bpe_o200k",
                                         "bpe_tekken"),
                         [](const auto& test) { return std::string(test.param); });

class GgufBytePairGolden : public BytePairGolden {};

TEST_P(GgufBytePairGolden, GgufGivesTheSameIdsAndTexts) {
  const auto path = directory_ / (std::string(GetParam()) + ".vocab.gguf");
  const auto tokenizer = FromGgufFile(path);
  ASSERT_TRUE(tokenizer);
  ExpectCases(tokenizer, golden_);
  ExpectDecodes(tokenizer, golden_);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GgufBytePairGolden, testing::Values("bpe_llama3", "bpe_qwen2"),
                         [](const auto& test) { return std::string(test.param); });

class ModelGolden : public testing::TestWithParam<const char*> {};

TEST_P(ModelGolden, ChatIdsEqualThoseOfTheReference) {
  QUIRE_FIND_OR_SKIP(directory, std::filesystem::path("models") / GetParam());
  const json golden = json::parse(ReadFile(directory / "golden.json"));
  const auto tokenizer = FromJsonFile(directory / "tokenizer.json",
                                      ordered_json::parse(ReadFile(directory / "tokenizer_config.json")));
  ASSERT_TRUE(tokenizer);
  const json& chat = golden["chat"];
  const auto ids = chat["ids"].get<std::vector<TokenId>>();
  EXPECT_EQ(EncodeGolden(*tokenizer, chat["rendered"].get<std::string>(), SpecialTokens::kParse), ids);
  EXPECT_EQ(tokenizer->bos_id(),
            golden["bos_id"].is_null() ? std::nullopt : std::optional(golden["bos_id"].get<TokenId>()));
  EXPECT_EQ(tokenizer->eos_id(), golden["eos_id"].get<TokenId>());
  if (const auto model = directory / "tokenizer.model"; std::filesystem::exists(model)) {
    const std::string bytes = ReadFile(model);
    const auto from_model = Tokenizer::FromSentencePiece(
        std::as_bytes(std::span(bytes)), ordered_json::parse(ReadFile(directory / "tokenizer_config.json")));
    ASSERT_TRUE(from_model) << from_model.error().message;
    EXPECT_EQ(EncodeGolden(**from_model, chat["rendered"].get<std::string>(), SpecialTokens::kParse), ids);
  }
  for (const char* type : {"f16", "f32", "bf16"}) {
    const auto gguf = test_data::Find("gguf/" + std::string(GetParam()) + "." + type + ".gguf");
    if (gguf.empty()) continue;
    const auto from_gguf = FromGgufFile(gguf);
    ASSERT_TRUE(from_gguf);
    EXPECT_EQ(EncodeGolden(*from_gguf, chat["rendered"].get<std::string>(), SpecialTokens::kParse), ids)
        << gguf;
    EXPECT_EQ(from_gguf->add_bos(), tokenizer->add_bos());
    EXPECT_EQ(from_gguf->eos_id(), tokenizer->eos_id());
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ModelGolden,
                         testing::Values("gemma2", "gemma3", "gemma4_e", "gemma4_moe", "lfm2", "lfm2_moe",
                                         "llama", "mistral", "qwen3", "qwen3_5", "qwen3_next"),
                         [](const auto& test) { return std::string(test.param); });
INSTANTIATE_TEST_SUITE_P(Fixtures, ModelGolden, testing::Values("lfm2_k256", "llama_k256"),
                         [](const auto& test) { return std::string(test.param); });

// How a SentencePiece fixture is read.
enum class Source : uint8_t { kModel, kJson, kGguf };

class SentencePieceGolden : public testing::TestWithParam<std::pair<const char*, Source>> {
 protected:
  void SetUp() override {
    QUIRE_FIND_OR_SKIP(directory, "tokenizers");
    directory_ = directory;
    golden_ = json::parse(ReadFile(directory_ / (name() + ".json")));
    ASSERT_EQ(golden_["cases"].size(), 275U);
    ASSERT_GE(golden_["decode"].size(), 38U);
  }

  static std::string name() { return GetParam().first; }

  TokenizerPtr Load() const {
    if (GetParam().second == Source::kJson) return FromJsonFile(directory_ / (name() + ".tokenizer.json"));
    if (GetParam().second == Source::kGguf) return FromGgufFile(directory_ / (name() + ".vocab.gguf"));
    const std::string bytes = ReadFile(directory_ / (name() + ".model"));
    auto tokenizer = Tokenizer::FromSentencePiece(std::as_bytes(std::span(bytes)), nullptr);
    EXPECT_TRUE(tokenizer) << tokenizer.error().message;
    return tokenizer ? *tokenizer : nullptr;
  }

  std::filesystem::path directory_;
  json golden_;
};

TEST_P(SentencePieceGolden, GivesTheSameIdsAndTexts) {
  const auto tokenizer = Load();
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->vocab_size(), golden_["vocab_size"].get<int32_t>());
  for (const json& c : golden_["cases"]) {
    const auto text = c["text"].get<std::string>();
    SCOPED_TRACE(c["text"].dump());
    const auto ids = c["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(EncodeGolden(*tokenizer, text, SpecialTokens::kAsText), ids);
    if (text.find("<s>") == std::string::npos ||
        c.contains("hf_ids_parse_special")) {  // else nothing is recorded
      EXPECT_EQ(EncodeGolden(*tokenizer, text, SpecialTokens::kParse), c.value("hf_ids_parse_special", ids));
    }
    EXPECT_EQ(DecodeGolden(tokenizer, ids), c.value("decoded", text));
  }
  for (const json& c : golden_["decode"]) {
    SCOPED_TRACE(c.dump());
    const auto ids = c["ids"].get<std::vector<TokenId>>();
    // For invalid bytes the library writes one U+FFFD each when it decodes at once: see the fixtures' README.
    if (!c.contains("stream_note")) {
      EXPECT_EQ(DecodeGolden(tokenizer, ids), c["text"].get<std::string>());
    }
    Detokenizer detokenizer(tokenizer);
    std::vector<std::string> stream;
    for (const TokenId id : ids) stream.push_back(detokenizer.Append(id));
    stream.push_back(detokenizer.Flush());
    EXPECT_EQ(stream, c["stream"].get<std::vector<std::string>>());
  }
}

// Ids in the middle of a text keep their spaces.
TEST_P(SentencePieceGolden, DecodesTheRestOfATextAsItStands) {
  if (name() == "spm_unigram_nmt_nfkc") GTEST_SKIP() << "rewrites texts";
  const auto tokenizer = Load();
  ASSERT_TRUE(tokenizer);
  const auto ids = EncodeGolden(*tokenizer, "one two  three", SpecialTokens::kAsText);
  for (size_t cut = 1; cut < ids.size(); ++cut) {
    Detokenizer begin(tokenizer);
    Detokenizer rest(tokenizer, Detokenizer::Special::kWrite, Detokenizer::StartAt::kMiddle);
    std::string text;
    for (size_t i = 0; i < ids.size(); ++i) text += (i < cut ? begin : rest).Append(ids[i]);
    EXPECT_EQ(text, "one two  three") << cut;
  }
}

std::string SourceName(const testing::TestParamInfo<std::pair<const char*, Source>>& info) {
  const char* source = info.param.second == Source::kModel  ? "_model"
                       : info.param.second == Source::kJson ? "_json"
                                                            : "_gguf";
  return std::string(info.param.first) + source;
}

INSTANTIATE_TEST_SUITE_P(
    Fixtures, SentencePieceGolden,
    testing::Values(std::pair("llama2_real", Source::kModel), std::pair("spm_llama_style", Source::kModel),
                    std::pair("spm_gemma_style", Source::kModel), std::pair("spm_unigram", Source::kModel),
                    std::pair("spm_unigram_nmt_nfkc", Source::kModel),
                    std::pair("spm_llama_style", Source::kJson), std::pair("spm_gemma_style", Source::kJson),
                    std::pair("spm_unigram", Source::kJson), std::pair("spm_llama_style", Source::kGguf)),
    SourceName);

class DemoModel : public testing::Test {
 protected:
  void ExpectGolden(const TokenizerPtr& tokenizer) {
    ASSERT_TRUE(tokenizer);
    const json golden = json::parse(ReadFile("tests/data/quire-demo.golden.json"));
    size_t checked = 0;
    for (const json& c : golden["chat"]) {
      EXPECT_EQ(EncodeGolden(*tokenizer, c["prompt"].get<std::string>(), SpecialTokens::kParse),
                c["prompt_ids"].get<std::vector<TokenId>>());
      EXPECT_EQ(DecodeGolden(tokenizer, c["completion_ids"].get<std::vector<TokenId>>()), c["completion"]);
      ++checked;
    }
    for (const json& c : golden["plain"]) {
      auto ids = EncodeGolden(*tokenizer, c["prompt"].get<std::string>(), SpecialTokens::kParse);
      ASSERT_TRUE(tokenizer->add_bos());
      ids.insert(ids.begin(), *tokenizer->bos_id());
      EXPECT_EQ(ids, c["prompt_ids"].get<std::vector<TokenId>>());
      EXPECT_EQ(DecodeGolden(tokenizer, c["completion_ids"].get<std::vector<TokenId>>()), c["completion"]);
      ++checked;
    }
    EXPECT_EQ(checked, 50U);
  }
};

TEST_F(DemoModel, TokenizerJsonGivesTheGoldenPrompts) {
  const std::filesystem::path directory = "packaging/models/quire-demo";
  ExpectGolden(FromJsonFile(directory / "tokenizer.json",
                            ordered_json::parse(ReadFile(directory / "tokenizer_config.json"))));
}

TEST_F(DemoModel, GgufGivesTheGoldenPrompts) {
  ExpectGolden(FromGgufFile("packaging/models/quire-demo-Q8_0.gguf"));
}

}  // namespace
}  // namespace quire::runner::tokenizer
