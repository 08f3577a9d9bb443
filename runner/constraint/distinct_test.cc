// Lists whose items must differ.

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "runner/constraint/automaton.h"
#include "runner/constraint/item_sets.h"
#include "runner/constraint/testing/byte_matching.h"

namespace quire::runner::constraint {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Unique(const std::string& items, const std::string& more = "") {
  return R"({"type":"array","uniqueItems":true,"items":)" + items + more + "}";
}

std::string DistinctErrorOf(const std::string& schema) {
  const auto grammar = CompileFormat(SchemaFormat(schema));
  EXPECT_FALSE(grammar.has_value()) << schema;
  return grammar ? "" : grammar.error().message;
}

struct Case {
  std::string text;
  Verdict verdict;
};

void ExpectDistinct(const std::string& schema, const std::vector<Case>& cases) {
  for (const auto& [text, verdict] : cases) EXPECT_EQ(Judge(schema, text), verdict) << schema << ' ' << text;
}

constexpr auto kMatches = Verdict::kMatches;
constexpr auto kBeginning = Verdict::kBeginning;
constexpr auto kImpossible = Verdict::kImpossible;

TEST(DistinctItems, NumbersDifferByValue) {
  ExpectDistinct(Unique(R"({"type":"integer"})"), {{"[]", kMatches},
                                                   {"[1, 2,3]", kMatches},
                                                   {"[1,-1]", kMatches},
                                                   {"[1,1", kBeginning},
                                                   {"[1,12]", kMatches},
                                                   {"[1,1]", kImpossible},
                                                   {"[1,1,", kImpossible},
                                                   {"[1,1 ", kImpossible},
                                                   {"[1,2,1]", kImpossible},
                                                   {"[0,0", kImpossible},
                                                   {"[1.0", kImpossible}});
  ExpectDistinct(Unique(R"({"type":"number"})"), {{"[1,1.05,10,-0.5]", kMatches},
                                                  {"[1,1.0", kBeginning},
                                                  {"[1,1.0]", kImpossible},
                                                  {"[1,1e0", kImpossible},
                                                  {"[1,1.]", kImpossible},
                                                  {"[0,-0", kBeginning},
                                                  {"[0,-0]", kImpossible},
                                                  {"[0.5,0.5]", kImpossible},
                                                  {"[0.5,0.50", kBeginning},
                                                  {"[0.5,0.50]", kImpossible}});
  ExpectDistinct(Unique(R"({"type":"number","minimum":-1,"maximum":2.5})"), {{"[-1,0,1,2.5,-0.25]", kMatches},
                                                                             {"[2.50", kImpossible},
                                                                             {"[2,2.0]", kImpossible},
                                                                             {"[0,0.0]", kImpossible},
                                                                             {"[-0]", kImpossible}});
  ExpectDistinct(
      Unique(R"({"anyOf":[{"type":"integer"},{"enum":[1.0,2.50,-0.0]}]})"),
      {{"[1,2.5,0]", kMatches}, {"[1.0", kImpossible}, {"[1,1]", kImpossible}, {"[-0", kImpossible}});
}

TEST(DistinctItems, StringsAreWrittenInOneWay) {
  const std::string strings = Unique(R"({"type":"string"})");
  ExpectDistinct(strings, {{R"(["a","A","a ","\\","\"","é","\n","\u0001"])", kMatches},
                           {R"(["a","a)", kBeginning},
                           {R"(["a","ab"])", kMatches},
                           {R"(["a","a")", kImpossible},
                           {R"(["a","\u0061)", kImpossible},
                           {R"(["\/)", kImpossible},
                           {R"(["\u00e9)", kImpossible},
                           {R"(["\n","\n")", kImpossible},
                           {R"(["","")", kImpossible}});
  ExpectDistinct(Unique(R"({"type":"string","pattern":"^a?b?$"})"),
                 {{R"(["","a","b","ab"])", kMatches}, {R"(["","a","b","ab",)", kImpossible}});
  ExpectDistinct(Unique(R"({"type":["string","integer"]})"),
                 {{R"([1,"1"])", kMatches}, {R"([1,"1",1])", kImpossible}});
}

TEST(DistinctItems, WhatIsUsedUpIsNotBegun) {
  const std::string three = Unique(R"({"type":["boolean","null"]})");
  ExpectDistinct(three, {{"[true,false,null]", kMatches},
                         {"[true,t", kImpossible},
                         {"[true,false,null,", kImpossible},
                         {"[true,false,null ,", kImpossible},
                         {"[true,false,", kBeginning},
                         {"[true,null,f", kBeginning}});
  const std::string words = Unique(R"({"enum":["ab","ac","b"]})");
  ExpectDistinct(words, {{R"(["ab","a)", kBeginning},
                         {R"(["ab","ab)", kImpossible},
                         {R"(["ab","ac","a)", kImpossible},
                         {R"(["ab","ac","b"])", kMatches},
                         {R"(["ab","ac","b" ,)", kImpossible}});
  const std::string ten = Unique(R"({"type":"integer","minimum":1,"maximum":10})");
  ExpectDistinct(
      ten, {{"[1,1", kBeginning}, {"[10,1,1", kImpossible}, {"[10,1", kBeginning}, {"[1,10,2]", kMatches}});
  ExpectDistinct(Unique("false"), {{"[]", kMatches}, {"[1", kImpossible}});
}

TEST(DistinctItems, ConstantsAreEqualByValue) {
  const std::string schema =
      Unique(R"({"enum":[1,1.0,{"a":1,"b":[2]},{"b":[2.0],"a":1.0},[1],[1e0],"x"]})", R"(,"minItems":4)");
  ExpectDistinct(schema, {{R"([1,{"a":1,"b":[2]},[1],"x"])", kMatches}, {R"([1,[1],[1)", kImpossible}});
  EXPECT_THAT(DistinctErrorOf(Unique(R"({"enum":[1,1.0,"x"]})", R"(,"minItems":3)")),
              HasSubstr("matches no text"));
  EXPECT_THAT(DistinctErrorOf(Unique(R"({"enum":["a","b"]})", R"(,"minItems":3)")),
              HasSubstr("matches no text"));
  EXPECT_THAT(DistinctErrorOf(Unique(R"({"type":"boolean"})", R"(,"minItems":3,"maxItems":9)")),
              HasSubstr("matches no text"));
}

TEST(DistinctItems, CountsHoldToo) {
  const std::string schema = Unique(R"({"type":"integer"})", R"(,"minItems":2,"maxItems":3)");
  ExpectDistinct(
      schema, {{"[1]", kImpossible}, {"[1,2]", kMatches}, {"[1,2,3,", kImpossible}, {"[1,1]", kImpossible}});
}

TEST(DistinctItems, EveryListIsItsOwn) {
  const std::string schema =
      R"({"$defs":{"l":)" + Unique(R"({"enum":["a","b"]})") +
      R"(},"type":"object","required":["x","y"],"properties":{"x":{"$ref":"#/$defs/l"},"y":{"$ref":"#/$defs/l"}}})";
  ExpectDistinct(
      schema, {{R"({"x":["a","b"],"y":["b","a"]})", kMatches}, {R"({"x":["a"],"y":["a","a)", kImpossible}});
  const std::string nested = R"({"type":"array","items":)" + Unique(R"({"type":"integer"})") + "}";
  ExpectDistinct(nested, {{"[[1,2],[1,2],[]]", kMatches}, {"[[1],[1,1]", kImpossible}});
  const std::string either =
      R"({"anyOf":[)" + Unique(R"({"type":"integer"})") + R"(,{"type":"array","items":{"type":"boolean"}}]})";
  ExpectDistinct(either, {{"[true,true]", kMatches}, {"[1,1]", kImpossible}, {"[1,true", kImpossible}});
  const std::string both = R"({"anyOf":[)" + Unique(R"({"type":"integer"})") +
                           R"(,{"type":"array","items":{"type":"integer","minimum":5}}]})";
  ExpectDistinct(
      both, {{"[7,7]", kMatches}, {"[1,7]", kMatches}, {"[7,7,1]", kImpossible}, {"[1,7,7]", kImpossible}});
}

TEST(DistinctItems, WhatCannotBeToldApartIsRefused) {
  for (const std::string items : {R"({})", R"({"type":"object"})", R"({"type":["integer","array"]})",
                                  R"({"anyOf":[{"type":"string"},{"type":"object","properties":{}}]})"}) {
    EXPECT_THAT(
        DistinctErrorOf(R"({"properties":{"a":)" + Unique(items) + "}}"),
        AllOf(HasSubstr("#/properties/a: the keyword \"uniqueItems\""), HasSubstr("objects or arrays")));
  }
  EXPECT_THAT(DistinctErrorOf(R"({"type":"array","uniqueItems":true})"), HasSubstr("objects or arrays"));
  EXPECT_THAT(DistinctErrorOf(R"({"type":"array","uniqueItems":true,"prefixItems":[{"type":"null"}]})"),
              HasSubstr("together with \"prefixItems\""));
  EXPECT_EQ(Judge(Unique("{}", R"(,"maxItems":1)"), "[{}]"), kMatches);
  EXPECT_EQ(Judge(R"({"type":"array","uniqueItems":false})", "[1,1]"), kMatches);
}

TEST(DistinctItems, MasksAreExactAndDocumentsValid) {
  const TestVocabulary vocabulary;
  std::mt19937 random(20261122);
  for (const std::string& schema :
       {Unique(R"({"type":"integer"})"),
        Unique(R"({"type":"integer","minimum":8,"maximum":13})", R"(,"minItems":5)"),
        Unique(R"({"type":"number"})", R"(,"minItems":3)"),
        Unique(R"({"type":"string"})", R"(,"minItems":2)"),
        Unique(R"({"type":"string","maxLength":1,"pattern":"[ab]"})", R"(,"minItems":2)"),
        Unique(R"({"enum":["a","ab","abc","A","AB-1","name","item","items",12,1,345,null]})",
               R"(,"minItems":9)"),
        Unique(R"({"type":["boolean","null"]})", R"(,"minItems":3)")}) {
    SCOPED_TRACE(schema);
    const auto constraint = Constrain(SchemaFormat(schema), vocabulary);
    for (int i = 0; i < 30; ++i) {
      const std::string text = Walk(constraint, vocabulary, random);
      const auto items = nlohmann::json::parse(text);
      for (size_t a = 0; a < items.size(); ++a) {
        for (size_t b = 0; b < a; ++b) EXPECT_NE(items[a], items[b]) << text;
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(DistinctItems, CopiesGoSeparateWays) {
  const TestVocabulary vocabulary;
  const auto take = [](Matcher& matcher, std::string_view text) {
    for (const char c : text) {
      if (!matcher.Accept(static_cast<uint8_t>(c) + 2)) return false;
    }
    return true;
  };
  Matcher matcher(
      Constrain(SchemaFormat(Unique(R"({"type":"integer","minimum":0,"maximum":9})")), vocabulary));
  ASSERT_TRUE(take(matcher, "[1,2"));
  Matcher copy = matcher;
  EXPECT_TRUE(take(copy, ",3,4"));
  EXPECT_TRUE(take(matcher, ",4,3"));
  ExpectExactMask(copy, vocabulary);
  ExpectExactMask(matcher, vocabulary);
  EXPECT_FALSE(take(copy, ",3"));
  EXPECT_TRUE(take(matcher, ",5]"));
  EXPECT_TRUE(matcher.Mask().Has(TestVocabulary::kEnd));
}

TEST(ItemSets, SharedSetsStayAsTheyWere) {
  ItemSets sets;
  const auto with = [&sets](ListItems items, std::string_view text) {
    for (const char c : text) items = sets.Write(items, static_cast<uint8_t>(c));
    return items;
  };
  const ListItems one = ItemSets::End(with({}, "ab"));
  const ListItems two = ItemSets::End(with(one, "ac"));
  const ListItems other = ItemSets::End(with(one, "x"));
  EXPECT_EQ(sets.Count(one), 1U);
  EXPECT_EQ(sets.Count(two), 2U);
  EXPECT_EQ(sets.Count(other), 2U);
  EXPECT_EQ(sets.CountWithPrefix(with(two, "a")), 2U);
  EXPECT_EQ(sets.CountWithPrefix(with(other, "a")), 1U);
  EXPECT_FALSE(sets.Has(with(two, "a")));
  EXPECT_TRUE(sets.Has(with(two, "ac")));
  EXPECT_FALSE(sets.Has(with(other, "ac")));
  const auto mark = sets.mark();
  with(two, "zzz");
  sets.Rewind(mark);
  EXPECT_TRUE(sets.Has(with(other, "x")));
}

TEST(CountTexts, CountsBytesAndKnowsCircles) {
  const auto count = [](const ExprRef& expr) { return CountTexts(*BuildDfa(*expr))[0]; };
  EXPECT_EQ(count(Never()), 0U);
  EXPECT_EQ(count(Choice({Literal("a"), Literal("ab"), Nothing()})), 3U);
  EXPECT_EQ(count(Repeat(Byte('0', '9'), 0, 3)), 1111U);
  EXPECT_EQ(count(Repeat(Byte('0', '9'), 0, 12)), kManyTexts);
  EXPECT_EQ(count(Sequence({Literal("x"), Repeat(Byte('0', '9'), 0, std::nullopt)})), kManyTexts);
  EXPECT_EQ(count(Choice({Literal("x"), Sequence({Repeat(Byte('0', '9'), 0, std::nullopt), Never()})})), 1U);
}

}  // namespace
}  // namespace quire::runner::constraint
