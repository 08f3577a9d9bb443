// SentencePiece vocabularies: their rules one by one, hostile files, and large texts. The recorded ids and
// texts of whole vocabularies are in tokenizer_golden_test.cc.
#include "runner/tokenizer/sentencepiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/tokenizer/byte_tokens.h"
#include "runner/tokenizer/character_map.h"
#include "runner/tokenizer/detokenizer.h"
#include "runner/tokenizer/testing/mini_sentencepiece.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::tokenizer {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

constexpr TokenId kFirst = 259;  // behind WithBytes' own tokens
constexpr TokenId Byte(int byte) { return 3 + byte; }

api::Result<TokenizerPtr> TryLoad(std::string_view bytes, const ordered_json& config = nullptr) {
  return Tokenizer::FromSentencePiece(std::as_bytes(std::span(bytes)), config);
}

TokenizerPtr LoadPieces(const MiniSentencePiece& model, const ordered_json& config = nullptr) {
  auto tokenizer = TryLoad(Serialize(model), config);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return tokenizer ? *tokenizer : nullptr;
}

std::vector<TokenId> EncodePieces(const TokenizerPtr& tokenizer, std::string_view text,
                                  SpecialTokens special = SpecialTokens::kAsText) {
  return tokenizer->Encode(text, special).value();
}

std::string Decode(const TokenizerPtr& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.Append(id);
  return text + detokenizer.Flush();
}

TEST(SentencePieceBpe, MergesByScoreLeftmostFirstAndFallsBackToBytes) {
  const auto tokenizer =
      LoadPieces({.pieces = WithBytes({{"a", -10}, {"b", -11}, {"ab", -2}, {"ba", -2}, {"aba", -3}})});
  EXPECT_THAT(EncodePieces(tokenizer, "ab"), ElementsAre(kFirst + 2));
  // "ab" and "ba" are equally good: the left pair merges.
  EXPECT_THAT(EncodePieces(tokenizer, "bab"), ElementsAre(kFirst + 3, kFirst + 1));
  EXPECT_THAT(EncodePieces(tokenizer, "aba"), ElementsAre(kFirst + 4));
  EXPECT_THAT(EncodePieces(tokenizer, "a\u00E9b"), ElementsAre(kFirst, Byte(0xC3), Byte(0xA9), kFirst + 1));
  EXPECT_THAT(EncodePieces(tokenizer, " "), ElementsAre(Byte(0xE2), Byte(0x96), Byte(0x81)));
}

// Gemma's vocabularies have runs of tabs, but the tab itself is a byte.
TEST(SentencePieceBpe, CharactersThatAreNoPiecesMergeIntoPieces) {
  const auto tokenizer =
      LoadPieces({.pieces = WithBytes({{"a", -10}, {"\t\t", -11}, {"\t\t\t", -12}, {"a\u00E9", -13}})});
  EXPECT_THAT(EncodePieces(tokenizer, "\t\t"), ElementsAre(kFirst + 1));
  EXPECT_THAT(EncodePieces(tokenizer, "\t"), ElementsAre(Byte('\t')));
  EXPECT_THAT(EncodePieces(tokenizer, "\ta\t\t\t\u00E9a\u00E9"),
              ElementsAre(Byte('\t'), kFirst, kFirst + 2, Byte(0xC3), Byte(0xA9), kFirst + 3));
  std::vector<TokenId> many(48, kFirst + 1);  // beyond the pieces that a scan merges
  many.push_back(kFirst + 2);
  EXPECT_EQ(EncodePieces(tokenizer, std::string(99, '\t')), many);
  const auto unknown = LoadPieces({.pieces = {{"<unk>", 0, TokenType::kUnknown}, {"a", -1}, {"\t\t", -2}}});
  EXPECT_THAT(EncodePieces(unknown, "\tx\t\ta\t"), ElementsAre(0, 2, 1, 0));
}

TEST(SentencePieceBpe, WithoutByteTokensNeighboringUnknownsAreOne) {
  const auto tokenizer = LoadPieces({.pieces = {{"<unk>", 0, TokenType::kUnknown}, {"a", -1}}});
  EXPECT_THAT(EncodePieces(tokenizer, "axya"), ElementsAre(1, 0, 1));
  EXPECT_EQ(Decode(tokenizer, {1, 0, 1}), "a \u2047 a");
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);  // piece 1 is no control token
}

TEST(SentencePieceUnigram, TakesTheBestSum) {
  const auto tokenizer = LoadPieces(
      {.model_type = 1, .pieces = WithBytes({{"a", -4}, {"b", -4}, {"c", -4}, {"ab", -5}, {"bc", -3}})});
  EXPECT_THAT(EncodePieces(tokenizer, "abc"), ElementsAre(kFirst, kFirst + 4));  // -7 beats -9
  EXPECT_THAT(EncodePieces(tokenizer, "ab"), ElementsAre(kFirst + 3));           // -5 beats -8
  EXPECT_THAT(EncodePieces(tokenizer, "ax"), ElementsAre(kFirst, Byte('x')));
  EXPECT_THAT(EncodePieces(tokenizer, "<s>"), ElementsAre(Byte('<'), Byte('s'), Byte('>')));
  EXPECT_THAT(EncodePieces(tokenizer, "<s>a", SpecialTokens::kParse), ElementsAre(1, kFirst));
}

TEST(SentencePiece, PutsASpaceBeforeTheTextAndTakesItAway) {
  const auto tokenizer =
      LoadPieces({.pieces = WithBytes({{"\u2581", -1}, {"a", -2}, {"\u2581a", -3}}), .dummy_prefix = true});
  EXPECT_THAT(EncodePieces(tokenizer, "a a"), ElementsAre(kFirst + 2, kFirst + 2));
  EXPECT_EQ(Decode(tokenizer, {kFirst + 2, kFirst + 2}), "a a");
  EXPECT_EQ(Decode(tokenizer, EncodePieces(tokenizer, "  a ")), "  a ");
  EXPECT_EQ(Decode(tokenizer, {1, kFirst + 2}),
            "<s> a");  // a marker is text here: the space is not at its start
  EXPECT_THAT(EncodePieces(tokenizer, ""), ElementsAre());
}

TEST(SentencePiece, SquashesSpaces) {
  const auto tokenizer = LoadPieces({.pieces = WithBytes({{"\u2581", -1}, {"a", -2}, {"\u2581a", -3}}),
                                     .dummy_prefix = true,
                                     .squash_spaces = true});
  EXPECT_THAT(EncodePieces(tokenizer, "  a   a  "), ElementsAre(kFirst + 2, kFirst + 2));
  EXPECT_THAT(EncodePieces(tokenizer, "   "), ElementsAre());
}

TEST(SentencePiece, SymbolsAreFoundInAnyTextAndControlTokensInTrustedText) {
  const auto tokenizer = LoadPieces({.pieces = WithBytes({{"a", -1},
                                                          {"\u2581", -2},
                                                          {"<x>", 0, TokenType::kUserDefined},
                                                          {"\u2581\u2581", 0, TokenType::kUserDefined},
                                                          {"zz", 0, TokenType::kUnused}})});
  EXPECT_THAT(EncodePieces(tokenizer, "a<x>a   "),
              ElementsAre(kFirst, kFirst + 2, kFirst, kFirst + 3, kFirst + 1));
  EXPECT_THAT(EncodePieces(tokenizer, "zz"), ElementsAre(Byte('z'), Byte('z')));
  EXPECT_FALSE(tokenizer->IsSpecial(kFirst + 2));
  EXPECT_TRUE(tokenizer->IsSpecial(1));
  EXPECT_EQ(tokenizer->TokenBytes(kFirst + 3), "  ");
}

TEST(SentencePiece, MarkupThatNoTextSpellsIsSpecial) {
  const auto tokenizer = LoadPieces(
      {.pieces = WithBytes({{"<", -1}, {"b", -2}, {">", -3}, {"<b", -4}, {"<b>", -5}, {"<turn>", -6}})});
  EXPECT_THAT(EncodePieces(tokenizer, "<b>"), ElementsAre(kFirst + 4));
  EXPECT_THAT(EncodePieces(tokenizer, "<turn>", SpecialTokens::kParse), ElementsAre(kFirst + 5));
  EXPECT_NE(EncodePieces(tokenizer, "<turn>"), std::vector<TokenId>{kFirst + 5});
  EXPECT_FALSE(tokenizer->IsSpecial(kFirst + 4));
}

TEST(SentencePiece, TheConfigNamesEndsAndSpecialTokens) {
  const MiniSentencePiece model{
      .pieces = WithBytes({{"<end>", 0, TokenType::kUserDefined}, {"<t>", 0, TokenType::kUserDefined}})};
  const auto plain = LoadPieces(model);
  EXPECT_TRUE(plain->add_bos());
  EXPECT_EQ(plain->bos_id(), 1);
  EXPECT_EQ(plain->eos_id(), 2);
  EXPECT_THAT(EncodePieces(plain, "<t>"), ElementsAre(kFirst + 1));
  const auto configured =
      LoadPieces(model, {{"eos_token", "<end>"},
                         {"add_bos_token", false},
                         {"added_tokens_decoder",
                          {{"260", {{"content", "<t>"}, {"special", true}}},
                           {"99999999999999999999", {{"content", "<t>"}, {"special", true}}},
                           {"-1", 5}}}});
  EXPECT_EQ(configured->eos_id(), kFirst);
  EXPECT_FALSE(configured->add_bos());
  EXPECT_TRUE(configured->IsSpecial(kFirst));
  EXPECT_TRUE(configured->IsSpecial(kFirst + 1));
}

TEST(ByteTokens, AreSpelledOneWay) {
  EXPECT_EQ(ByteOfEntry("<0x0A>"), 10);
  EXPECT_EQ(ByteOfEntry("<0xff>"), 255);
  for (const char* entry :
       {"<0x-1>", "<0x+1>", "<0x 1>", "<0x1>", "<0x100>", "<0xG0>", "0x00", "<0x0A", ""}) {
    EXPECT_EQ(ByteOfEntry(entry), std::nullopt) << entry;
  }
}

// ---- large texts: what is quadratic takes hours here ----

TEST(SentencePieceBpe, TakesAMillionBytesOfAnything) {
  std::vector<std::string> runs(1);
  std::vector<SentencePieceVocabulary::Entry> pieces;
  for (int i = 0; i < 6; ++i) {
    for (const char* unit : {"\u2581", "a"}) {
      std::string run;
      for (int n = 0; n < 1 << i; ++n) run += unit;
      runs.push_back(run);
    }
  }
  for (size_t i = 1; i < runs.size(); ++i) pieces.push_back({runs[i], -static_cast<float>(i)});
  for (const uint64_t type : {1, 2}) {
    const auto tokenizer =
        LoadPieces({.model_type = type, .pieces = WithBytes(pieces), .dummy_prefix = true});
    EXPECT_EQ(EncodePieces(tokenizer, std::string(1'048'575, ' ')).size(), 32768U);
    EXPECT_EQ(EncodePieces(tokenizer, std::string(1'048'576, 'a')).size(), 32769U);
    EXPECT_EQ(EncodePieces(tokenizer, std::string(1'000'000, 'x')).size(), 1'000'001U);
    std::string words;
    while (words.size() < 1'000'000) words += "aaaa aa ";
    EXPECT_EQ(Decode(tokenizer, EncodePieces(tokenizer, words)), words);
  }
}

// ---- hostile files ----

std::string Refusal(std::string_view bytes) {
  const auto tokenizer = TryLoad(bytes);
  if (tokenizer) return "accepted";
  EXPECT_EQ(tokenizer.error().code, api::ErrorCode::kBadModel);
  return tokenizer.error().message;
}

std::string Piece(std::string_view fields) { return ProtoBytes(1, fields); }

TEST(HostileSentencePiece, IsRefusedWithAReason) {
  const std::string a = Piece(ProtoBytes(1, "a"));
  EXPECT_THAT(Refusal(""), HasSubstr("no pieces"));
  EXPECT_THAT(Refusal("\x0A"), HasSubstr("not a protocol buffer, or cut short"));
  EXPECT_THAT(Refusal("\x0A\x7F"), HasSubstr("not a protocol buffer"));
  EXPECT_THAT(Refusal(std::string("\x0A") + std::string(9, '\xFF') + "\x7F"),
              HasSubstr("not a protocol buffer"));
  EXPECT_THAT(Refusal(std::string(11, '\xFF')), HasSubstr("not a protocol buffer"));
  EXPECT_THAT(Refusal("\x0B"), HasSubstr("not a protocol buffer"));                          // a group
  EXPECT_THAT(Refusal(a + std::string("\x02\x00", 2)), HasSubstr("not a protocol buffer"));  // field 0
  EXPECT_THAT(Refusal(Piece("")), HasSubstr("piece 0: empty"));
  EXPECT_THAT(Refusal(a + Piece(ProtoBytes(1, "\xFF"))), HasSubstr("piece 1: not UTF-8"));
  EXPECT_THAT(Refusal(a + Piece("\x0A\x05x")), HasSubstr("piece 1: not a message"));
  EXPECT_THAT(Refusal(Piece(ProtoBytes(1, "a") + ProtoNumber(3, 7))), HasSubstr("piece 0: not a type"));
  EXPECT_THAT(Refusal(Piece(ProtoBytes(1, "a") + ProtoNumber(3, ~uint64_t{0}))), HasSubstr("not a type"));
  EXPECT_THAT(Refusal(Piece(ProtoBytes(1, "<0x-1>") + ProtoNumber(3, 6))), HasSubstr("piece 0: not a byte"));
  EXPECT_THAT(Refusal(Piece(ProtoBytes(1, "a") + ProtoFloat(2, NAN))), HasSubstr("piece 0: its score"));
  EXPECT_THAT(Refusal(Piece(ProtoBytes(1, std::string(600, 'a')))), HasSubstr("longer than 512 bytes"));
  EXPECT_THAT(Refusal(Piece(ProtoBytes(1, std::string(2000, 'a')) + ProtoNumber(3, 4))),
              HasSubstr("too long"));
  EXPECT_THAT(Refusal(a + ProtoBytes(2, ProtoNumber(3, 3))), HasSubstr("model_type 3 is not supported"));
  EXPECT_THAT(Refusal(a + ProtoBytes(2, ProtoNumber(24, 1))), HasSubstr("treat_whitespace_as_suffix"));
  EXPECT_THAT(Refusal(a + ProtoBytes(3, ProtoNumber(5, 0))), HasSubstr("escape_whitespaces"));
  EXPECT_THAT(Refusal(a + ProtoBytes(3, ProtoBytes(2, "abc"))), HasSubstr("precompiled charsmap: too short"));
  EXPECT_EQ(Refusal(a), "accepted");
}

// Lengths of 2^63 and the like cost nothing before they are refused.
TEST(HostileSentencePiece, StatedLengthsCostNothing) {
  const auto peak = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return int64_t{usage.ru_maxrss} * 1024;
  };
  const int64_t before = peak();
  for (const char top : {'\x01', '\x7F'}) {
    std::string length(9, '\x80');
    length.push_back(top);
    for (const char tag : {'\x0A', '\x12', '\x1A'}) {
      EXPECT_THAT(Refusal(tag + length + std::string(1000, 'x')), HasSubstr("not a protocol buffer"));
    }
    EXPECT_THAT(Refusal(Piece('\x0A' + length + "x")), HasSubstr("piece 0: not a message"));
  }
  EXPECT_LT(peak() - before, int64_t{16} << 20);
}

// Whatever single byte is changed and wherever the file is cut, it is refused or read without harm.
TEST(HostileSentencePiece, SurvivesEveryDamage) {
  MiniSentencePiece model{.model_type = 1,
                          .pieces = {{"<unk>", 0, TokenType::kUnknown},
                                     {"<s>", 0, TokenType::kControl},
                                     {"<0x20>", 0, TokenType::kByte},
                                     {"\u2581", -1},
                                     {"ab", -2},
                                     {"b", -3},
                                     {"cc", 0, TokenType::kUserDefined}},
                          .dummy_prefix = true};
  const uint32_t units[] = {1U << 10, 0, 'a' | 1U << 8, 1U << 31};
  model.character_map.assign("\x10\0\0\0", 4);
  model.character_map.append(reinterpret_cast<const char*>(units), sizeof(units)).append("b\0", 2);
  for (const uint64_t type : {1, 2}) {
    model.model_type = type;
    const std::string bytes = Serialize(model);
    int accepted = 0;
    const auto use = [&](std::string_view damaged) {
      const std::vector<char> exact(damaged.begin(), damaged.end());
      const auto tokenizer = TryLoad({exact.data(), exact.size()});
      if (!tokenizer) return;
      ++accepted;
      for (const TokenId id : EncodePieces(*tokenizer, "ab <s> \u00E9a", SpecialTokens::kParse)) {
        ASSERT_LT(id, (*tokenizer)->vocab_size());
      }
    };
    for (size_t at = 0; at < bytes.size(); ++at) {
      use(std::string_view(bytes).substr(0, at));
      for (const unsigned mask : {0x01U, 0x80U, 0xFFU, 0x20U, 0x07U}) {
        std::string damaged = bytes;
        damaged[at] = static_cast<char>(static_cast<unsigned char>(damaged[at]) ^ mask);
        use(damaged);
      }
    }
    EXPECT_GT(accepted, 10);
  }
}

// A double array by hand: unit 0 is the root, whose children begin at offset 1; 'a' is unit 1 ^ 'a', with the
// value unit beside it.
TEST(CharacterMap, ReplacesTheLongestSequence) {
  std::vector<uint32_t> units(512, 0);
  units[0] = 1U << 10;
  units[1 ^ 'a'] = 'a' | 1U << 8 | (256U ^ 1U ^ 'a') << 10;  // a value, and children from 256 on
  units[256] = 1U << 31 | 0;                                 // "a" -> "x"
  units[256 ^ 'b'] = 'b' | 1U << 8 | ('b' ^ 1U) << 10;       // its value unit is 257
  units[257] = 1U << 31 | 2;                                 // "ab" -> "yz"
  const auto blob = [&](std::string_view replacements) {
    const auto size = static_cast<uint32_t>(units.size() * sizeof(uint32_t));
    std::string bytes(reinterpret_cast<const char*>(&size), sizeof(size));
    bytes.append(reinterpret_cast<const char*>(units.data()), size).append(replacements);
    return bytes;
  };
  const std::string good = blob(std::string_view("x\0yz\0", 5));
  const auto map = CharacterMap::Parse(std::as_bytes(std::span(good)));
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(map->Apply("a"), "x");
  EXPECT_EQ(map->Apply("cabac\u00E9"), "cyzxc\u00E9");
  EXPECT_EQ(map->Apply(""), "");
  for (const std::string& bad :
       {blob("x"), blob(std::string(200, 'x') + '\0'), blob(std::string_view("\xFF\0", 2)), good.substr(0, 3),
        good.substr(0, 100)}) {
    EXPECT_FALSE(CharacterMap::Parse(std::as_bytes(std::span(bad))));
  }
  // Values and offsets that point outside are no replacement.
  units[256] = 1U << 31 | 500;
  units[257] = 0x7FFFFFFF;
  const std::string outside = blob(std::string_view("x\0yz\0", 5));
  EXPECT_EQ(CharacterMap::Parse(std::as_bytes(std::span(outside)))->Apply("aba"), "aba");
}

// The same vocabulary through GGUF's keys.
TEST(SentencePieceGguf, IsReadAndRefusedByField) {
  ordered_json kv = {{"tokenizer.ggml.model", "llama"},
                     {"tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "\u2581", "a", "\u2581a", "<0x0A>"}},
                     {"tokenizer.ggml.scores", {0.0, 0.0, 0.0, -1.0, -2.0, -3.5, 0.0}},
                     {"tokenizer.ggml.token_type", {2, 3, 3, 1, 1, 1, 6}}};
  const auto tokenizer = Tokenizer::FromGguf(kv);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_THAT(EncodePieces(*tokenizer, "a a\n"), ElementsAre(5, 5, 6));
  EXPECT_EQ((*tokenizer)->bos_id(), 1);
  EXPECT_EQ((*tokenizer)->eos_id(), 2);
  EXPECT_TRUE((*tokenizer)->add_bos());

  kv["tokenizer.ggml.add_space_prefix"] = false;
  EXPECT_THAT(EncodePieces(*Tokenizer::FromGguf(kv), "a"), ElementsAre(4));
  kv["tokenizer.ggml.model"] = "gemma4";
  kv["tokenizer.ggml.merges"] = {"\u2581 a"};
  EXPECT_THAT(EncodePieces(*Tokenizer::FromGguf(kv), " a"), ElementsAre(5));
  kv["tokenizer.ggml.model"] = "t5";
  EXPECT_THAT(EncodePieces(*Tokenizer::FromGguf(kv), " a"), ElementsAre(3, 4));
  EXPECT_TRUE((*Tokenizer::FromGguf(kv))->add_eos());

  const auto refusal = [kv](const char* key, const ordered_json& value) {
    ordered_json damaged = kv;
    damaged["tokenizer.ggml.model"] = "llama";
    damaged[std::string("tokenizer.ggml.") + key] = value;
    const auto result = Tokenizer::FromGguf(damaged);
    return result ? std::string("accepted") : result.error().message;
  };
  EXPECT_THAT(refusal("scores", nullptr), HasSubstr("scores: not an array as long as tokens"));
  EXPECT_THAT(refusal("scores", {1, 2}), HasSubstr("scores: not an array as long as tokens"));
  EXPECT_THAT(refusal("scores", {0, 0, 0, 0, 0, 0, "x"}), HasSubstr("scores[6]: not a number"));
  EXPECT_THAT(refusal("token_type", {2, 3, 3, 1, 1, 6, 6}), HasSubstr("piece 5: not a byte"));
  EXPECT_THAT(refusal("precompiled_charsmap", {300}),
              HasSubstr("precompiled_charsmap: not an array of bytes"));
  EXPECT_THAT(refusal("precompiled_charsmap", {1, 2}), HasSubstr("precompiled charsmap: too short"));
  EXPECT_THAT(refusal("add_space_prefix", 1), HasSubstr("add_space_prefix: not a boolean"));
}

}  // namespace
}  // namespace quire::runner::tokenizer
