// Keywords of schemas as clients write them.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/constraint/schema.h"
#include "runner/constraint/testing/byte_matching.h"

namespace quire::runner::constraint {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

struct KeywordCase {
  std::string schema;
  std::vector<std::string> matches, others;
};

void ExpectEach(const std::vector<KeywordCase>& cases) {
  for (const auto& [schema, matches, others] : cases) {
    const auto grammar = CompileFormat(SchemaFormat(schema));
    ASSERT_TRUE(grammar.has_value()) << schema << ": " << grammar.error().message;
    for (const std::string& text : matches)
      EXPECT_EQ(Judge(**grammar, text), Verdict::kMatches) << schema << ' ' << text;
    for (const std::string& text : others)
      EXPECT_NE(Judge(**grammar, text), Verdict::kMatches) << schema << ' ' << text;
  }
}

TEST(Keywords, UnknownOnesAreAnnotations) {
  ExpectEach({
      {R"({"type":"number","unit":"kg"})", {"9.50"}, {"\"x\""}},
      {R"({"type":"string","enum":["a"],"enumNames":["A"]})", {"\"a\""}, {"\"A\""}},
      {R"({"type":"string","format":"password"})", {"\"x\""}, {"1"}},
      {R"({"type":"string","format":"uuid4","minLength":2})", {"\"xy\""}, {"\"x\""}},
  });
}

TEST(Keywords, OfOtherDialects) {
  ExpectEach({
      {R"({"type":"STRING"})", {"\"x\""}, {"1"}},
      {R"({"type":["Integer","NULL"]})", {"1", "null"}, {"\"x\""}},
      {R"({"type":"string","nullable":true})", {"\"x\"", "null"}, {"1"}},
      {R"({"type":"string","enum":["a"],"nullable":true})", {"\"a\"", "null"}, {"\"b\""}},
      {R"({"$defs":{"a":{"const":1}},"allOf":[{"$ref":"#/$defs/a"}],"nullable":true})", {"1", "null"}, {"2"}},
      {R"({"$defs":{"a":{"const":1}},"$ref":"#/$defs/a","nullable":true})", {"1", "null"}, {"2"}},
      {R"({"anyOf":[{"const":1},{"const":2}],"nullable":true})", {"1", "2", "null"}, {"3"}},
      {R"({"type":"string","nullable":false})", {"\"x\""}, {"null"}},
  });
}

TEST(Keywords, References) {
  ExpectEach({
      {R"({"$id":"http://x/y","$defs":{"A":{"const":1}},"$ref":"http://x/y#/$defs/A"})", {"1"}, {"2"}},
      {R"({"$defs":{"A":{"$anchor":"a","const":1}},"$ref":"#a"})", {"1"}, {"2"}},
      {R"({"$defs":{"A":{"$id":"http://x/a.json","const":1}},"$ref":"a.json"})", {"1"}, {"2"}},
      {R"({"$defs":{"A":{"$dynamicAnchor":"node","const":1}},"$dynamicRef":"#node"})", {"1"}, {"2"}},
  });
  const auto other = CompileFormat(SchemaFormat(R"({"$ref":"http://example.com/x"})"));
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().message, HasSubstr("$ref"));
}

TEST(Keywords, PatternProperties) {
  ExpectEach({
      {R"({"type":"object","patternProperties":{"^(.*)$":{"type":"integer"}}})",
       {R"({"a":1,"b":2})", "{}"},
       {R"({"a":"x"})"}},
      {R"({"type":"object","patternProperties":{"^g_[0-9]+$":{"type":"integer"}},"additionalProperties":false})",
       {R"({"g_1":5,"g_22":6})"},
       {R"({"g_x":5})", R"({"h":1})"}},
      {R"({"type":"object","properties":{"n":{"const":1}},"patternProperties":{"^s":{"type":"string"}},"required":["n"]})",
       {R"({"n":1,"s1":"x"})"},
       {R"({"n":1,"t":"x"})", R"({"n":1,"s":2})"}},
      {R"({"type":"object","patternProperties":{"a":{"minimum":3},"b":{"maximum":5}},"additionalProperties":{"type":"null"}})",
       {R"({"a":9,"b":1,"ab":4,"c":null})"},
       {R"({"ab":9})", R"({"ab":1})", R"({"c":1})"}},
      {R"({"type":"object","properties":{"size":{"type":"integer"}},"patternProperties":{"^s":{"minimum":5}}})",
       {R"({"size":7})"},
       {R"({"size":1})"}},
  });
}

TEST(Keywords, MultipleOf) {
  ExpectEach({
      {R"({"type":"integer","multipleOf":5})", {"0", "-5", "10", "12345"}, {"7", "12", "-1"}},
      {R"({"type":"number","multipleOf":0.01})",
       {"9.5", "9.50", "9.99", "3", "-0.01", "1.250000"},
       {"9.999", "0.001"}},
      {R"({"type":"number","multipleOf":0.25,"minimum":0.5,"maximum":2})",
       {"0.5", "0.75", "1", "1.0", "2.00"},
       {"0.25", "0.6", "2.25", "0.3"}},
      {R"({"enum":[1,2,3,4],"multipleOf":2})", {"2", "4"}, {"1", "3"}},
      {R"({"type":"integer","multipleOf":1.0})", {"7"}, {"7.5"}},
  });
}

TEST(Keywords, NotOfTheSimpleKinds) {
  ExpectEach({
      {R"({"not":{"type":"null"}})", {"1", "\"x\"", "{}"}, {"null"}},
      {R"({"not":{"type":["object","array","string"]}})", {"1", "null"}, {"{}", "[]", "\"x\""}},
      {R"({"type":"object","properties":{"h":{"not":{}},"p":{"const":1}},"required":["p"]})",
       {R"({"p":1})"},
       {R"({"h":1,"p":1})"}},
      {R"({"type":"integer","not":{"const":0}})", {"1", "-1", "10"}, {"0", "-0"}},
      {R"({"type":"string","not":{"enum":["a","b"]}})", {"\"c\"", "\"ab\"", "\"\""}, {"\"a\"", "\"b\""}},
      {R"({"type":["string","null","boolean"],"not":{"enum":[null,true,"x"]}})",
       {"false", "\"y\""},
       {"null", "true", "\"x\""}},
      {R"({"type":"string","not":{"pattern":"^a"}})", {"\"b\"", "\"\""}, {"\"a\"", "\"ab\""}},
      {R"({"type":"object","properties":{"a":{},"b":{}},"not":{"required":["b"]}})",
       {R"({"a":1})"},
       {R"({"b":1})"}},
      {R"({"enum":[1,2,3],"not":{"const":2}})", {"1", "3"}, {"2"}},
      {R"({"not":{"anyOf":[{"type":"null"},{"const":1}]}})", {"2", "\"x\""}, {"null", "1"}},
      {R"({"type":"array","items":{"type":"integer","not":{"const":5}},"uniqueItems":true})",
       {"[1,2]"},
       {"[5]", "[1,1]"}},
  });
}

TEST(Keywords, OneOfIsAsAnyOf) {
  ExpectEach({
      {R"({"oneOf":[{"type":"number"},{"type":"integer"}]})", {"1", "1.5"}, {"\"x\""}},
      {R"({"oneOf":[{"type":"object","properties":{"a":{"const":1}},"required":["a"]},{"type":"object","properties":{"b":{"const":2}},"required":["b"]}]})",
       {R"({"a":1})", R"({"b":2})"},
       {R"({"a":2})", "{}"}},
  });
}

TEST(Keywords, UnevaluatedIsAsAdditional) {
  ExpectEach({
      {R"({"type":"object","properties":{"a":{"const":1}},"unevaluatedProperties":false})",
       {R"({"a":1})"},
       {R"({"b":1})"}},
      {R"({"type":"object","properties":{"a":{"const":1}},"unevaluatedProperties":{"const":2}})",
       {R"({"a":1,"b":2})"},
       {R"({"b":1})"}},
      {R"({"type":"array","prefixItems":[{"const":1}],"unevaluatedItems":false})", {"[1]", "[]"}, {"[1,1]"}},
  });
}

TEST(Keywords, RegularExpressions) {
  const auto schema = [](const std::string& pattern) {
    return R"({"type":"string","pattern":)" + api::DumpJson(api::Json(pattern)) + "}";
  };
  ExpectEach({
      {schema(R"(^\bword\b$)"), {"\"word\""}, {"\"words\""}},
      {schema(R"(\bcat\b)"),
       {"\"cat\"", "\"a cat.\"", "\"\\ncat\"", "\"cat\\n\""},
       {"\"cats\"", "\"scat\"", "\"cat_\""}},
      {schema(R"(a\Bb)"), {"\"ab\""}, {"\"a b\""}},
      {schema(R"(^\p{L}+$)"), {"\"aé日\""}, {"\"a1\"", "\"\""}},
      {schema(R"(^\p{Lu}\p{Ll}*$)"), {"\"Éa\"", "\"A\""}, {"\"éa\""}},
      {schema(R"(^\P{N}$)"), {"\"x\""}, {"\"7\""}},
      {schema(R"(^(?<y>\d{4})$)"), {"\"2026\""}, {"\"26\""}},
      {schema(R"(^(?P<y>\d{4})$)"), {"\"2026\""}, {"\"26\""}},
      {schema(R"((?i)^abc$)"), {"\"AbC\""}, {"\"abd\""}},
      {schema(R"(^a(?i:bc)$)"), {"\"aBc\""}, {"\"Abc\""}},
      {schema(R"(^(?i)é$)"), {"\"É\"", "\"é\""}, {"\"e\""}},
      {schema(R"(\A[a-z]+\Z)"), {"\"abc\""}, {"\"1\"", "\"abc1\""}},
      {schema(R"((^a|b$))"), {"\"ax\"", "\"xb\""}, {"\"xa\"", "\"bx\""}},
      {schema(R"(^(?!x)(?:a|b)+$)"), {"\"ab\""}, {"\"c\""}},
      {schema(R"(^{a}$)"), {"\"{a}\""}, {"\"a\""}},
  });
}

std::set<std::string> LoosenedIn(const std::string& schema, Enforcement enforcement = Enforcement::kStrict) {
  GrammarBuilder builder;
  const auto parsed = api::ReadJson(schema);
  const auto expr = JsonSchema(*parsed, builder, {}, enforcement);
  EXPECT_TRUE(expr.has_value()) << schema << expr.error().message;
  return builder.loosened();
}

TEST(Keywords, WhatIsLoosenedIsNamed) {
  EXPECT_THAT(
      LoosenedIn(
          R"({"type":"object","properties":{"a":{"const":1}},"if":{"required":["z"]},"then":{"required":["b"]}})"),
      testing::ElementsAre("if", "then"));
  EXPECT_THAT(LoosenedIn(R"({"type":"object","properties":{"a":{}},"dependentRequired":{"a":["b"]}})"),
              testing::ElementsAre("dependentRequired"));
  EXPECT_THAT(LoosenedIn(R"({"type":"string","pattern":"^(?=.*[A-Z])[A-Za-z]{3,8}$"})"),
              testing::ElementsAre("look-around"));
  EXPECT_THAT(LoosenedIn(R"({"type":"string","maxLength":5})"), IsEmpty());
}

TEST(Keywords, AnAlternativeThatCannotBeCompiledIsLeftOut) {
  ExpectEach({
      {R"({"anyOf":[{"type":"string","pattern":"(a)\\1"},{"type":"integer"}]})", {"7"}, {"\"aa\""}},
      {R"({"type":["string","integer"],"anyOf":[{"pattern":"(a)\\1"},{"minimum":3}]})", {"7"}, {"1"}},
      {R"({"$defs":{"d":{"type":"array","items":{"type":"string","pattern":"(a)\\1"}}},"anyOf":[{"$ref":"#/$defs/d"},{"type":"null"}]})",
       {"null"},
       {"[]"}},
  });
  const auto none = CompileFormat(
      SchemaFormat(R"({"anyOf":[{"type":"string","pattern":"(a)\\1"},{"type":"array","contains":{}}]})"));
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().message, HasSubstr("back reference"));
  const auto broken = CompileFormat(SchemaFormat(R"({"anyOf":[{"type":"strin"},{"type":"null"}]})"));
  EXPECT_FALSE(broken.has_value()) << "what is broken is said";
}

TEST(Keywords, InALooseSchemaOneKeywordLoosensItsProperty) {
  for (const auto& [property, allowed] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type":"array","contains":{"const":1}})", "[2]"},
           {R"({"type":"string","pattern":"(a)\\1"})", "\"b\""},
           {R"({"type":"string","pattern":"(a|b)*a(a|b){30}"})", "\"b\""},
           {R"({"type":"array","items":{"type":"object"},"uniqueItems":true})", "[{}]"},
           {R"({"type":"string","maxLength":99999999})", "\"b\""},
           {R"({"type":"object","not":{"minProperties":3}})", "{}"},
           {R"({"minimum":"x"})", "true"}}) {
    const std::string schema =
        R"({"type":"object","properties":{"n":{"const":7},"p":)" + property + R"(},"required":["n","p"]})";
    EXPECT_THAT(LoosenedIn(schema, Enforcement::kLoose), testing::Not(IsEmpty())) << property;
    GrammarBuilder builder;
    const auto whole = JsonSchema(*api::ReadJson(schema), builder, {}, Enforcement::kLoose);
    const auto grammar = CompileGrammar(*whole, builder);
    ASSERT_TRUE(grammar.has_value()) << grammar.error().message;
    EXPECT_EQ(Judge(**grammar, R"({"n":7,"p":)" + allowed + "}"), Verdict::kMatches) << property;
    EXPECT_EQ(Judge(**grammar, R"({"n":8)"), Verdict::kImpossible) << property;
    EXPECT_EQ(Judge(**grammar, R"({"n":7,"p":)" + allowed + ","), Verdict::kImpossible) << property;
  }
}

}  // namespace
}  // namespace quire::runner::constraint
