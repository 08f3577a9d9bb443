// For tests: schemas compiled, texts matched byte by byte, a vocabulary that splits text in awkward places.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "api/json/read.h"
#include "runner/constraint/matcher.h"
#include "runner/constraint/output_format.h"
#include "runner/constraint/parse_states.h"

namespace quire::runner::constraint {

inline api::OutputFormat SchemaFormat(std::string schema) {
  return {api::OutputFormat::Kind::kSchema, std::move(schema), "format"};
}

inline api::Result<std::shared_ptr<const Grammar>> CompileFormat(const api::OutputFormat& format,
                                                                 const JsonStyle& style = {}) {
  GrammarBuilder builder;
  auto whole = AnswerOf(format, style, builder);
  if (!whole) return std::unexpected(whole.error());
  return CompileGrammar(*whole, builder);
}

inline api::Result<std::shared_ptr<const Grammar>> CompileRegex(std::string pattern) {
  return CompileFormat({api::OutputFormat::Kind::kRegex, std::move(pattern), "format"});
}

enum class Verdict { kMatches, kBeginning, kImpossible };

inline Verdict Judge(const Grammar& grammar, std::string_view text) {
  ParseArena arena;
  ParseStates at{{grammar.start(), kEmptyStack}};
  ParseStates next;
  bool ends = Close(grammar, arena, at);
  for (const char c : text) {
    ends = Read(grammar, arena, at, static_cast<uint8_t>(c), next);
    if (next.empty()) return Verdict::kImpossible;
    std::swap(at, next);
  }
  return ends ? Verdict::kMatches : Verdict::kBeginning;
}

inline Verdict Judge(const std::string& schema, std::string_view text) {
  const auto grammar = CompileFormat(SchemaFormat(schema));
  EXPECT_TRUE(grammar.has_value()) << schema << ": " << grammar.error().message;
  return grammar ? Judge(**grammar, text) : Verdict::kImpossible;
}

// Token 0 ends a generation, token 1 is special, then every byte, then pieces.
class TestVocabulary {
 public:
  static constexpr api::TokenId kEnd = 0;
  static constexpr api::TokenId kSpecial = 1;

  explicit TestVocabulary(bool pieces = true) {
    texts_ = {"<end>", "<call>"};
    for (int byte = 0; byte < 256; ++byte) texts_.emplace_back(1, static_cast<char>(byte));
    if (!pieces) return;
    for (const std::string_view piece : {"{\"",
                                         "\":",
                                         "\": ",
                                         "\":\"",
                                         "\",\"",
                                         "\", \"",
                                         "\"}",
                                         "\"},",
                                         "}}",
                                         "}]",
                                         "]}",
                                         "},{",
                                         "[{",
                                         "[]",
                                         "{}",
                                         "{\n  ",
                                         ",\n  \"",
                                         "\n  ",
                                         "\n}",
                                         "  ",
                                         "    ",
                                         " \"",
                                         " {",
                                         " [",
                                         "true",
                                         "false",
                                         "null",
                                         "tru",
                                         "e,",
                                         "name",
                                         "na",
                                         "me\"",
                                         "item",
                                         "items",
                                         "kind",
                                         "type",
                                         "id",
                                         "\\u",
                                         "\\ud83d",
                                         "\\n",
                                         "\\\"",
                                         "00",
                                         "12",
                                         "345",
                                         "1,",
                                         "0.",
                                         "0.5",
                                         ".5",
                                         "e1",
                                         "-1",
                                         "-",
                                         "é",
                                         "日本",
                                         "\xE6\x97",
                                         "\xA5\xE6\x9C",
                                         "\xAC\"",
                                         "\xF0\x9F",
                                         "\x98\x80",
                                         "the quick brown fox",
                                         "a b",
                                         " a",
                                         "a\"",
                                         "ab",
                                         "abc",
                                         "AB",
                                         "AB-1",
                                         "2024-",
                                         "-01",
                                         "-02-29",
                                         "A\",\"b"}) {
      texts_.emplace_back(piece);
    }
  }

  std::shared_ptr<const VocabularyIndex> Index() const {
    return std::make_shared<const VocabularyIndex>(
        static_cast<int32_t>(texts_.size()),
        [this](api::TokenId id) { return std::string_view(texts_[static_cast<size_t>(id)]); },
        [](api::TokenId id) { return id <= kSpecial; }, std::unordered_set<api::TokenId>{kEnd});
  }
  const std::string& Text(api::TokenId id) const { return texts_[static_cast<size_t>(id)]; }
  api::TokenId size() const { return static_cast<api::TokenId>(texts_.size()); }

 private:
  std::vector<std::string> texts_;
};

inline std::shared_ptr<Constraint> Constrain(const api::OutputFormat& format,
                                             const TestVocabulary& vocabulary) {
  auto grammar = CompileFormat(format);
  EXPECT_TRUE(grammar.has_value()) << format.text << ": " << grammar.error().message;
  return std::make_shared<Constraint>(std::move(*grammar), vocabulary.Index());
}

// A mask must be exactly the tokens that can be taken.
inline void ExpectExactMask(const Matcher& matcher, const TestVocabulary& vocabulary) {
  Matcher asked = matcher;
  const TokenMask mask = asked.Mask();
  for (api::TokenId id = 0; id < vocabulary.size(); ++id) {
    Matcher tried = matcher;
    ASSERT_EQ(mask.Has(id), tried.Accept(id)) << "token " << id << " '" << vocabulary.Text(id) << "'";
  }
}

// Random tokens that the mask allows, until the end; after a while those that close something. The text.
inline std::string Walk(const std::shared_ptr<Constraint>& constraint, const TestVocabulary& vocabulary,
                        std::mt19937& random) {
  Matcher matcher(constraint);
  std::string text;
  for (int step = 0; step < 2000; ++step) {
    if (step % 7 == 0) ExpectExactMask(matcher, vocabulary);
    std::vector<api::TokenId> ids = matcher.Mask().Ids();
    EXPECT_FALSE(ids.empty()) << "stuck behind " << text;
    if (ids.empty()) return text;
    if (step > 40) {
      std::vector<api::TokenId> closing;
      for (const api::TokenId id : ids) {
        const std::string& bytes = vocabulary.Text(id);
        if (id == TestVocabulary::kEnd || bytes == "\"" || bytes == "}" || bytes == "]")
          closing.push_back(id);
      }
      if (!closing.empty()) ids = closing;
    }
    const api::TokenId id = ids[random() % ids.size()];
    EXPECT_TRUE(matcher.Accept(id));
    if (id == TestVocabulary::kEnd) return text;
    text += vocabulary.Text(id);
  }
  ADD_FAILURE() << "no end: " << text;
  return text;
}

}  // namespace quire::runner::constraint
