// Strings and lists whose characters and items are counted beside the automaton.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>

#include "runner/constraint/testing/byte_matching.h"

namespace quire::runner::constraint {
namespace {

using testing::HasSubstr;

std::shared_ptr<const Grammar> Compiled(const std::string& schema) {
  auto grammar = CompileFormat(SchemaFormat(schema));
  EXPECT_TRUE(grammar.has_value()) << schema << ": " << grammar.error().message;
  return grammar.value_or(nullptr);
}

std::string CountedError(const std::string& schema) {
  const auto grammar = CompileFormat(SchemaFormat(schema));
  EXPECT_FALSE(grammar.has_value()) << schema;
  return grammar ? "" : grammar.error().message;
}

std::string Quoted(size_t count, std::string_view character = "x") {
  std::string text = "\"";
  for (size_t i = 0; i < count; ++i) text += character;
  return text + "\"";
}

TEST(Counted, StringsOfAnyLengthTakeFewStates) {
  const auto grammar = Compiled(R"({"type":"string","minLength":3000,"maxLength":1048576})");
  EXPECT_LT(grammar->states(), 300U);
  for (const std::string_view character : {"x", "é", "\\u00e9", "\\ud83d\\ude00", "\\n", "\\\\", "\\\""}) {
    EXPECT_EQ(Judge(*grammar, Quoted(2999, character)), Verdict::kImpossible) << character;
    EXPECT_EQ(Judge(*grammar, Quoted(3000, character)), Verdict::kMatches) << character;
  }
  EXPECT_EQ(Judge(*grammar, Quoted(1048576)), Verdict::kMatches);
  EXPECT_EQ(Judge(*grammar, Quoted(1048577)), Verdict::kImpossible);
  EXPECT_THAT(CountedError(R"({"type":"string","maxLength":1048577})"),
              HasSubstr("\"maxLength\" above 1048576"));
  EXPECT_THAT(CountedError(R"({"type":"string","minLength":1048577})"),
              HasSubstr("\"minLength\" above 1048576"));
  EXPECT_EQ(Judge(R"({"type":"string","maxLength":0})", "\"\""), Verdict::kMatches);
  EXPECT_EQ(Judge(R"({"type":"string","maxLength":0})", "\"x"), Verdict::kImpossible);
}

TEST(Counted, LengthsHoldBesidePatternsAndFormats) {
  const auto pairs = Compiled(R"({"type":"string","pattern":"^(ab)*$","minLength":2999,"maxLength":5001})");
  std::string text;
  for (int i = 0; i < 1499; ++i) text += "ab";
  EXPECT_EQ(Judge(*pairs, "\"" + text + "\""), Verdict::kImpossible);
  EXPECT_EQ(Judge(*pairs, "\"" + text + "ab\""), Verdict::kMatches);
  while (text.size() < 5000) text += "ab";
  EXPECT_EQ(Judge(*pairs, "\"" + text + "\""), Verdict::kMatches);
  EXPECT_EQ(Judge(*pairs, "\"" + text + "a"), Verdict::kImpossible);
  EXPECT_THAT(CountedError(R"({"type":"string","pattern":"^(abc)*$","minLength":100,"maxLength":101})"),
              HasSubstr("matches no text"));
  const std::string uri = R"({"type":"string","format":"uri","minLength":10,"maxLength":2083})";
  EXPECT_EQ(Judge(uri, "\"https://example.org/" + std::string(2063, 'a') + "\""), Verdict::kMatches);
  EXPECT_EQ(Judge(uri, "\"https://example.org/" + std::string(2064, 'a')), Verdict::kImpossible);
  EXPECT_EQ(Judge(uri, "\"https://a\""), Verdict::kImpossible);
  // A pattern that matches shorter texts only where the rest still fits.
  const std::string ends = R"({"type":"string","pattern":"end$","maxLength":6})";
  EXPECT_EQ(Judge(ends, "\"abcend\""), Verdict::kMatches);
  EXPECT_EQ(Judge(ends, "\"abcd"), Verdict::kImpossible);
}

TEST(Counted, ListsOfAnyLengthTakeFewStates) {
  const auto list = [](int count) {
    std::string text = "[";
    for (int i = 0; i < count; ++i) text += i == 0 ? "[7]" : ", [7,8]";
    return text + "]";
  };
  const auto grammar = Compiled(
      R"({"type":"array","minItems":50,"maxItems":100000,"items":{"type":"array","maxItems":2,"items":{"type":"integer"}}})");
  EXPECT_LT(grammar->states(), 1000U);
  EXPECT_EQ(Judge(*grammar, list(49)), Verdict::kImpossible);
  EXPECT_EQ(Judge(*grammar, list(50)), Verdict::kMatches);
  EXPECT_EQ(Judge(*grammar, list(100000)), Verdict::kMatches);
  EXPECT_EQ(Judge(*grammar, list(100001)), Verdict::kImpossible);
  // Each list has its own count.
  const std::string nested =
      R"({"$defs":{"l":{"type":"array","minItems":9,"maxItems":20,"items":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/l"}]}}},"$ref":"#/$defs/l"})";
  const std::string nulls = "null,null,null,null,null,null,null,null";
  EXPECT_EQ(Judge(nested, "[" + nulls + ",[" + nulls + ",null],null]"), Verdict::kMatches);
  EXPECT_EQ(Judge(nested, "[" + nulls + ",[" + nulls + "]"), Verdict::kImpossible);
  EXPECT_EQ(Judge(nested, "[[" + nulls + ",null]," + nulls + "]"), Verdict::kMatches);
  EXPECT_EQ(Judge(nested, "[[" + nulls + ",null]]"), Verdict::kImpossible);
  const std::string tuple =
      R"({"type":"array","prefixItems":[{"type":"null"},{"type":"boolean"}],"items":{"const":1},"maxItems":12})";
  EXPECT_EQ(Judge(tuple, "[null,true,1,1,1,1,1,1,1,1,1,1]"), Verdict::kMatches);
  EXPECT_EQ(Judge(tuple, "[null,true,1,1,1,1,1,1,1,1,1,1,"), Verdict::kImpossible);
  EXPECT_EQ(Judge(tuple, "[null,1"), Verdict::kImpossible);
}

TEST(Counted, MasksAreExactNearEveryBound) {
  const TestVocabulary vocabulary;
  std::mt19937 random(20261129);
  for (
      const std::string schema :
      {R"({"type":"string","maxLength":3})", R"({"type":"string","minLength":19,"maxLength":20})",
       R"({"type":"string","minLength":5})",
       R"({"type":"string","pattern":"^(ab|é|a b)*$","minLength":3,"maxLength":11})",
       R"({"type":"string","pattern":"(abc)$","maxLength":30})",
       R"({"type":"array","items":{"type":"string","minLength":1,"maxLength":5},"minItems":2,"maxItems":12})",
       R"({"type":"array","items":{"enum":[1,12,345]},"minItems":10})",
       R"({"type":"object","additionalProperties":{"type":"string","maxLength":2}})"}) {
    SCOPED_TRACE(schema);
    const auto constraint = Constrain(SchemaFormat(schema), vocabulary);
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(nlohmann::json::accept(Walk(constraint, vocabulary, random)));
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Few of 10,000 places in a string have a mask of their own.
TEST(Counted, MasksFarFromABoundAreShared) {
  const TestVocabulary vocabulary;
  const auto constraint = Constrain(SchemaFormat(R"({"type":"string","maxLength":100000})"), vocabulary);
  Matcher matcher(constraint);
  ASSERT_TRUE(matcher.Accept('"' + 2));
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_GT(matcher.Mask().Count(), 100U);
    ASSERT_TRUE(matcher.Accept('x' + 2));
  }
  const uint64_t before = matcher.mask_steps();
  matcher.Mask();
  ASSERT_TRUE(matcher.Accept('x' + 2));
  EXPECT_GE(matcher.mask_steps(), before) << "nothing was charged for it";
}

TEST(Counted, AnAnswerGoesOnElsewhere) {
  const TestVocabulary vocabulary;
  const auto format =
      SchemaFormat(R"({"type":"array","maxItems":30,"items":{"type":"string","maxLength":9}})");
  const std::string text = R"(["abc","ab", "name","item",)";
  Matcher whole(Constrain(format, vocabulary)), resumed(Constrain(format, vocabulary));
  for (const char c : text) {
    whole.Mask();
    ASSERT_TRUE(whole.Accept(static_cast<uint8_t>(c) + 2));
    ASSERT_TRUE(resumed.Replay(static_cast<uint8_t>(c) + 2));
  }
  resumed.RestoreMaskSteps(whole.mask_steps());
  for (const char c : std::string_view("\"abcdefghi\"]")) {
    EXPECT_EQ(whole.Mask().Ids(), resumed.Mask().Ids());
    ASSERT_TRUE(whole.Accept(static_cast<uint8_t>(c) + 2));
    ASSERT_TRUE(resumed.Accept(static_cast<uint8_t>(c) + 2));
    EXPECT_EQ(whole.mask_steps(), resumed.mask_steps());
  }
}

}  // namespace
}  // namespace quire::runner::constraint
