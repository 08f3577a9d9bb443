// Files that lie: each is refused with kBadModel and the name of the field, or read for what it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/tokenizer/byte_level.h"
#include "runner/tokenizer/testing/mini_tokenizer.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::tokenizer {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::HasSubstr;

void ExpectRefused(const api::Result<std::shared_ptr<const Tokenizer>>& result, const std::string& message) {
  ASSERT_FALSE(result) << "wanted: " << message;
  EXPECT_EQ(result.error().code, api::ErrorCode::kBadModel);
  EXPECT_THAT(result.error().message, HasSubstr(message));
}

struct JsonCase {
  std::function<void(json&)> damage;
  const char* message;
};

TEST(HostileTokenizerJson, IsRefusedByField) {
  const JsonCase cases[] = {
      {[](json& d) { d.erase("model"); }, "model: not an object"},
      {[](json& d) { d["model"] = 3; }, "model: not an object"},
      {[](json& d) { d["model"]["type"] = "WordLevel"; }, "model.type"},
      {[](json& d) { d["model"]["type"] = "Unigram"; },
       "pre_tokenizer: ByteLevel is supported with BPE only"},
      {[](json& d) { d["model"]["type"] = "Unigram", d["pre_tokenizer"] = nullptr; },
       "model.vocab: not an array"},
      {[](json& d) { d["model"]["type"] = json::array(); }, "model.type"},
      {[](json& d) { d["model"]["dropout"] = 0.1; }, "model.dropout"},
      {[](json& d) { d["model"]["end_of_word_suffix"] = "</w>"; }, "model.end_of_word_suffix"},
      {[](json& d) { d["model"]["vocab"] = json::array(); }, "model.vocab: not an object"},
      {[](json& d) { d["model"]["vocab"] = json::object(); }, "model.vocab: empty"},
      {[](json& d) { d["model"]["vocab"]["zz"] = -1; }, "model.vocab[\"zz\"]: not a token id"},
      {[](json& d) { d["model"]["vocab"]["zz"] = 1.5; }, "model.vocab[\"zz\"]: not a token id"},
      {[](json& d) { d["model"]["vocab"]["zz"] = "7"; }, "model.vocab[\"zz\"]: not a token id"},
      {[](json& d) { d["model"]["vocab"]["zz"] = uint64_t{1} << 63U; },
       "model.vocab[\"zz\"]: not a token id"},
      {[](json& d) { d["model"]["vocab"]["zz"] = INT32_MAX; }, "leaves more than 65536 ids unused"},
      {[](json& d) { d["model"]["vocab"]["zz"] = 97; }, "id 97 is used twice"},
      {[](json& d) { d["model"]["vocab"][std::string(2 << 20, 'z')] = 300; }, "too long"},
      {[](json& d) { d["model"]["merges"] = "a b"; }, "model.merges: not an array"},
      {[](json& d) { d["model"]["merges"] = json::array({"a"}); }, "model.merges[0]: not two parts"},
      {[](json& d) {
         d["model"]["merges"] = json::array({"a b", "a b c"});
       },
       "model.merges[1]: not two parts"},
      {[](json& d) { d["model"]["merges"] = json::array({json::array({"a"})}); },
       "model.merges[0]: not a pair"},
      {[](json& d) {
         d["model"]["merges"] = json::array({json::array({"a", 1})});
       },
       "model.merges[0]: not a pair"},
      {[](json& d) {
         d["model"]["merges"] = json::array({json::array({"a", "b"}), json::array({"q", "u"})});
       },
       "model.merges[1]: \"qu\" is not in the vocabulary"},
      {[](json& d) {
         d["model"]["merges"] = json::array({json::array({"qu", "a"})});
       },
       "\"qu\" is not in the vocabulary"},
      {[](json& d) { d["model"]["unk_token"] = 5; }, "model.unk_token"},
      {[](json& d) { d["model"]["fuse_unk"] = "yes"; }, "model.fuse_unk"},
      {[](json& d) { d["model"]["ignore_merges"] = 1; }, "model.ignore_merges"},
      {[](json& d) { d["added_tokens"] = json::object(); }, "added_tokens: not an array"},
      {[](json& d) { d["added_tokens"] = {7}; }, "added_tokens[0].content"},
      {[](json& d) {
         d["added_tokens"] = {{{"content", "x"}}};
       },
       "added_tokens[0].id"},
      {[](json& d) { d["added_tokens"] = {Added(-5, "<s>")}; }, "added_tokens[0].id"},
      {[](json& d) { d["added_tokens"] = {Added(200'000, "<s>")}; }, "added_tokens[0].id"},
      {[](json& d) { d["added_tokens"] = {Added(97, "<s>")}; }, "added_tokens[0].id: id 97 is used twice"},
      {[](json& d) {
         d["added_tokens"] = {Added(300, "<s>"), Added(300, "<t>")};
       },
       "added_tokens[1].id"},
      {[](json& d) {
         d["added_tokens"] = {Added(300, "<s>"), Added(301, "<s>")};
       },
       "already has id 300"},
      {[](json& d) {
         d["added_tokens"] = {Added(300, "<s>"), Added(300, "<s>", false)};
       },
       "added_tokens[1].id: id 300 is added twice"},
      {[](json& d) { d["added_tokens"] = {Added(300, "a")}; }, "\"a\" already has id 97"},
      {[](json& d) { d["added_tokens"] = {Added(300, "")}; }, "added_tokens[0].content: 0 bytes"},
      {[](json& d) { d["added_tokens"] = {Added(300, std::string(5000, 'x'))}; },
       "added_tokens[0].content: 5000 bytes"},
      {[](json& d) { d["added_tokens"] = {Added(300, "<s>")}, d["added_tokens"][0]["lstrip"] = 1; },
       "added_tokens[0].lstrip"},
      {[](json& d) {
         d["normalizer"] = {{"type", "Nmt"}};
       },
       "normalizer: type \"Nmt\""},
      {[](json& d) { d["normalizer"] = "NFC"; }, "normalizer.type"},
      {[](json& d) {
         d["normalizer"] = {{"type", "Prepend"}, {"prepend", std::string(65, 'x')}};
       },
       "normalizer.prepend: too long"},
      {[](json& d) {
         d["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "x"}};
       },
       "normalizer.pattern.String: empty"},
      {[](json& d) {
         d["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", "x"}};
       },
       "normalizer.pattern: only a String"},
      {[](json& d) {
         const json grow = {
             {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(64, 'a')}};
         d["normalizer"] = {{"type", "Sequence"}, {"normalizers", {grow, grow, grow}}};
       },
       "normalizer: its steps may make a text too long"},
      {[](json& d) {
         d["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "?"}};
       },
       "normalizer.precompiled_charsmap: not base64"},
      {[](json& d) {
         d["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAAAA=="}};
       },
       "normalizer.precompiled_charsmap: a trie of 0 bytes"},
      {[](json& d) {
         d["pre_tokenizer"] = nullptr;
         d["decoder"] = {{"type", "BPEDecoder"}};
       },
       "decoder: type \"BPEDecoder\""},
      {[](json& d) {
         d["pre_tokenizer"] = nullptr;
         d["decoder"] = {{"type", "Strip"}, {"content", " "}, {"start", 7}, {"stop", 0}};
       },
       "decoder: only one space"},
      {[](json& d) {
         d["post_processor"] = {{"type", "OtherProcessing"}};
       },
       "post_processor: type"},
      {[](json& d) {
         d["post_processor"] = {{"type", "TemplateProcessing"}};
       },
       "post_processor.single"},
      {[](json& d) {
         d["post_processor"] = {{"type", "TemplateProcessing"}, {"single", json::array()}};
       },
       "post_processor.single: without the text"},
      {[](json& d) {
         d["post_processor"] = {
             {"type", "TemplateProcessing"},
             {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
             {"special_tokens", {{"<s>", {{"ids", {99999}}}}}}};
       },
       "post_processor.single: id 99999 is outside the vocabulary"},
      {[](json& d) {
         d["post_processor"] = {
             {"type", "TemplateProcessing"},
             {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
             {"special_tokens", json::object()}};
       },
       "is not one id of special_tokens"},
  };
  ASSERT_TRUE(Tokenizer::FromTokenizerJson(MiniTokenizer({{"a", "b"}}).dump(), nullptr));
  for (const JsonCase& c : cases) {
    json document = MiniTokenizer({{"a", "b"}});
    c.damage(document);
    ExpectRefused(Tokenizer::FromTokenizerJson(document.dump(), nullptr), c.message);
  }
}

TEST(HostileTokenizerJson, TextThatIsNoJson) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("nonsense"), std::string("\xFF"),
        std::string("{\"model\": \"\xC3\"}"), std::string("[]"), std::string("null")}) {
    ExpectRefused(Tokenizer::FromTokenizerJson(text, nullptr), "tokenizer.json: ");
  }
  ExpectRefused(Tokenizer::FromTokenizerJson(std::string(50'000'000, '['), nullptr), "nested deeper than 64");
}

TEST(HostileTokenizerJson, AnOddConfigIsOverlooked) {
  const std::string text = MiniTokenizer().dump();
  for (const ordered_json& config : {ordered_json(3), ordered_json::array(), ordered_json{{"bos_token", 5}},
                                     ordered_json{{"bos_token", {{"content", 5}}}},
                                     ordered_json{{"pad_token", "absent"}, {"add_bos_token", true}},
                                     ordered_json{{"add_bos_token", "yes"}}}) {
    const auto tokenizer = Tokenizer::FromTokenizerJson(text, config);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_FALSE((*tokenizer)->add_bos());
  }
}

ordered_json MiniGguf() {
  ordered_json kv = {{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", "llama-bpe"}};
  auto& tokens = kv["tokenizer.ggml.tokens"] = ordered_json::array();
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(ByteLevelCharacter(static_cast<uint8_t>(byte)));
  tokens.push_back("ab");
  tokens.push_back("<s>");
  kv["tokenizer.ggml.token_type"] = std::vector<int>(258, 1);
  kv["tokenizer.ggml.token_type"][257] = 3;
  kv["tokenizer.ggml.merges"] = {"a b"};
  kv["tokenizer.ggml.bos_token_id"] = 257U;
  return kv;
}

TEST(HostileGguf, IsRefusedByField) {
  struct Case {
    std::function<void(ordered_json&)> damage;
    const char* message;
  };
  const Case cases[] = {
      {[](ordered_json& kv) { kv = nullptr; }, "tokenizer.ggml.model: absent"},
      {[](ordered_json& kv) { kv = ordered_json::array(); }, "tokenizer.ggml.model: absent"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.model"] = 1; }, "tokenizer.ggml.model: not a string"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.model"] = "plamo"; }, "tokenizer.ggml.model: \"plamo\""},
      {[](ordered_json& kv) { kv.erase("tokenizer.ggml.pre"); }, "tokenizer.ggml.pre: absent"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.pre"] = "poro"; },
       "tokenizer.ggml.pre: \"poro\" is not known; these are: gpt-2"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.normalizer.nfc"] = 1; }, "tokenizer.ggml.normalizer.nfc"},
      {[](ordered_json& kv) { kv.erase("tokenizer.ggml.tokens"); }, "tokenizer.ggml.tokens: not an array"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.tokens"] = ordered_json::array(); },
       "tokenizer.ggml.tokens: empty"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.tokens"][4] = 4; },
       "tokenizer.ggml.tokens[4]: not a string"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.tokens"][4] = std::string(2 << 20, 'x'); },
       "tokenizer.ggml.tokens[4]: too long"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.tokens"][257] = "\xC3"; },
       "tokenizer.ggml.tokens[257]: not UTF-8"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.tokens"][257] = std::string(5000, 'x'); },
       "tokenizer.ggml.tokens[257]: 5000 bytes"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.token_type"].erase(0); }, "tokenizer.ggml.token_type"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.token_type"][9] = 7; }, "tokenizer.ggml.token_type[9]"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.token_type"][9] = "1"; }, "tokenizer.ggml.token_type[9]"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.merges"] = 1; }, "tokenizer.ggml.merges: not an array"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.merges"] = {"a"}; },
       "tokenizer.ggml.merges[0]: not two parts"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.merges"] = {""}; },
       "tokenizer.ggml.merges[0]: not two parts"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.merges"] = {"a "}; },
       "tokenizer.ggml.merges[0]: not two parts"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.merges"] = {"a c"}; },
       "tokenizer.ggml.merges[0]: \"ac\" is not in tokens"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.bos_token_id"] = 258U; }, "tokenizer.ggml.bos_token_id"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.eos_token_id"] = -1; }, "tokenizer.ggml.eos_token_id"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.eot_token_id"] = uint64_t{1} << 32U; },
       "tokenizer.ggml.eot_token_id"},
      {[](ordered_json& kv) { kv["tokenizer.ggml.add_bos_token"] = "yes"; }, "tokenizer.ggml.add_bos_token"},
  };
  for (const Case& c : cases) {
    ordered_json kv = MiniGguf();
    c.damage(kv);
    ExpectRefused(Tokenizer::FromGguf(kv), c.message);
  }
}

TEST(Gguf, TypesAndDefaults) {
  ordered_json kv = MiniGguf();
  auto tokenizer = Tokenizer::FromGguf(kv);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_TRUE((*tokenizer)->add_bos());  // the pre-tokenizer's default
  EXPECT_EQ((*tokenizer)->bos_id(), 257);
  EXPECT_EQ(*(*tokenizer)->Encode("ab<s>", SpecialTokens::kParse), (std::vector<TokenId>{256, 257}));
  EXPECT_EQ(*(*tokenizer)->Encode("ab<s>", SpecialTokens::kAsText),
            (std::vector<TokenId>{256, '<', 's', '>'}));

  kv["tokenizer.ggml.add_bos_token"] = false;
  kv["tokenizer.ggml.token_type"][257] = 4;  // user-defined: vocabulary, found in any text
  kv.erase("tokenizer.ggml.bos_token_id");
  tokenizer = Tokenizer::FromGguf(kv);
  ASSERT_TRUE(tokenizer);
  EXPECT_FALSE((*tokenizer)->add_bos());
  EXPECT_EQ(*(*tokenizer)->Encode("<s>", SpecialTokens::kAsText), (std::vector<TokenId>{257}));

  kv["tokenizer.ggml.token_type"][257] = 1;  // the file does not mark EOS as a control token
  kv["tokenizer.ggml.eot_token_id"] = 257U;
  tokenizer = Tokenizer::FromGguf(kv);
  ASSERT_TRUE(tokenizer);
  EXPECT_TRUE((*tokenizer)->IsSpecial(257));
}

TEST(Gguf, NormalizesWhereTheReferenceDoes) {
  ordered_json kv = MiniGguf();
  const auto ids = [&] { return *(*Tokenizer::FromGguf(kv))->Encode("e\u0301", SpecialTokens::kAsText); };
  const std::vector<TokenId> as_is = {'e', 0xCC, 0x81};
  const std::vector<TokenId> composed = {0xC3, 0xA9};
  EXPECT_EQ(ids(), as_is);
  kv["tokenizer.ggml.pre"] = "qwen2";
  EXPECT_EQ(ids(), composed);
  kv["tokenizer.ggml.normalizer.nfc"] = false;
  EXPECT_EQ(ids(), as_is);
  kv["tokenizer.ggml.pre"] = "gpt-2";
  kv["tokenizer.ggml.normalizer.nfc"] = true;
  EXPECT_EQ(ids(), composed);
}

}  // namespace
}  // namespace quire::runner::tokenizer
