#include "runner/constraint/schema.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "runner/constraint/testing/byte_matching.h"

namespace quire::runner::constraint {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string ErrorOf(const std::string& schema) {
  const auto grammar = CompileFormat(SchemaFormat(schema));
  EXPECT_FALSE(grammar.has_value()) << schema;
  return grammar ? "" : grammar.error().message;
}

// Valid documents of the shared set that say the same in another way than the one that can be written:
// another order of properties, an escaped key, an integer with an exponent; or that have properties which no
// schema names.
bool IsOtherSpelling(const std::string& schema, const std::string& document) {
  static const std::set<std::pair<std::string, std::string>> kOthers = {
      {"integer", "1e2"},
      {"exclusive_range", "1e-3"},
      {"const", R"({"r":2.5,"kind":"circle"})"},
      {"object_optional", R"({"b":"y","a":0,"c":false})"},
      {"object_open", R"({"x":{},"id":2})"},
      {"object_open", R"({"id":1,"x":[1,2]})"},
      {"object_open", R"({"id":0,"":null})"},
      {"object_open", R"({"id":3,"id2":"z"})"},
      {"nullable_union", R"({"n":-3,"v":"y"})"},
      {"ref_defs", R"({"b":{"y":0,"x":0},"a":{"x":0,"y":0}})"},
      {"recursive_tree", R"({"kids":[{"v":2,"kids":[{"v":3,"kids":[]}]},{"v":4,"kids":[]}],"v":0})"},
      {"any_of", R"({"item":{"n":0,"type":"a"}})"},
      {"any_of", R"({"item":{"s":"","type":"b"}})"},
      {"extraction",
       R"({"count":2,"people":[{"name":"A","age":null,"role":"ops"},{"name":"B","age":2,"role":"dev"}]})"},
      {"extraction", R"({"people":[{"role":"ops","age":0,"name":""}],"count":-1})"},
      {"unicode_keys", R"({"q\"k":false,"a b":0,"имя":""})"},
      {"unicode_keys", R"({"\u0438\u043c\u044f":"x","a b":1,"q\"k":true})"},
      {"unicode_keys", R"({"имя":"я","a b":-1,"q\u0022k":true})"},
  };
  return kOthers.contains({schema, document});
}

TEST(JsonSchema, SharedSet) {
  std::ifstream file("tests/data/schemas/schemas.json");
  ASSERT_TRUE(file);
  const auto set = nlohmann::ordered_json::parse(file);
  for (const auto& entry : set["schemas"]) {
    const std::string name = entry["name"];
    SCOPED_TRACE(name);
    const auto grammar = CompileFormat(SchemaFormat(entry["schema"].dump()));
    ASSERT_TRUE(grammar.has_value()) << grammar.error().message;
    for (const std::string document : entry["valid"]) {
      const bool reachable = !IsOtherSpelling(name, document);
      EXPECT_EQ(Judge(**grammar, document) == Verdict::kMatches, reachable) << document;
    }
    for (const auto& invalid : entry["invalid"]) {
      const std::string document = invalid["text"];
      EXPECT_NE(Judge(**grammar, document), Verdict::kMatches) << document;
      if (invalid["reason"] == "truncated") {
        EXPECT_EQ(Judge(**grammar, document), Verdict::kBeginning) << document;
      }
    }
  }
}

TEST(JsonSchema, UnsupportedKeywordsAreNamedWithTheirPlace) {
  EXPECT_EQ(ErrorOf(R"({"properties":{"a":{"not":{"minimum":5}}}})"),
            "format: #/properties/a: the keyword \"not\" is not supported of this schema");
  for (const auto& [keyword, value] :
       std::vector<std::pair<std::string, std::string>>{{"contains", R"({"a":{}})"},
                                                        {"multipleOf", "0.123456789012"},
                                                        {"not", R"({"type":"string","minLength":3})"}}) {
    EXPECT_THAT(ErrorOf("{\"type\":[\"object\",\"number\"],\"" + keyword + "\":" + value + "}"),
                AllOf(HasSubstr("\"" + keyword + "\""), HasSubstr("#")));
  }
}

TEST(JsonSchema, BrokenSchemasAreErrors) {
  for (const std::string schema : {R"({"type":"strin"})",
                                   R"({"type":[]})",
                                   R"({"enum":[]})",
                                   R"({"properties":[]})",
                                   R"({"required":"a"})",
                                   R"({"minLength":-1})",
                                   R"({"minItems":1.5})",
                                   R"({"minimum":"1"})",
                                   R"({"$ref":"#/$defs/no"})",
                                   R"({"items":5})",
                                   R"({"anyOf":[]})",
                                   R"({"pattern":"("})",
                                   R"({"pattern":"[z-a]"})",
                                   R"([])",
                                   R"(5)",
                                   R"({"$ref":"#"})",
                                   R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})",
                                   R"({"allOf":[{"$ref":"#"}]})",
                                   R"({"type":"string","minLength":3,"maxLength":2})",
                                   R"(false)",
                                   R"({"type":"object","required":["a"],"additionalProperties":false})"}) {
    EXPECT_NE(ErrorOf(schema), "") << schema;
  }
}

TEST(JsonSchema, LargeAndDeepSchemasAreErrorsOrFine) {
  std::string deep;
  for (int i = 0; i < 400; ++i) deep += R"({"type":"array","items":)";
  deep += "{}" + std::string(400, '}');
  EXPECT_THAT(ErrorOf(deep), HasSubstr("too deep"));
  EXPECT_THAT(ErrorOf(R"({"type":"string","pattern":"(a|b)*a(a|b){30}"})"), HasSubstr("too large"));
  EXPECT_THAT(ErrorOf(R"({"type":"string","minLength":100000000})"), HasSubstr("minLength"));
  EXPECT_THAT(ErrorOf(R"({"type":"string","maxLength":100000000})"), HasSubstr("maxLength"));
  std::string wide = R"({"type":"object","properties":{)";
  for (int i = 0; i < 300; ++i)
    wide += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + R"(":{"type":"integer"})";
  EXPECT_EQ(Judge(wide + "}}", R"({"p7":1,"p299":5})"), Verdict::kMatches);
}

TEST(JsonSchema, PropertiesInOrderOthersBehind) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{}},"required":["a"],"additionalProperties":true})";
  EXPECT_EQ(Judge(schema, R"({"a":1})"), Verdict::kMatches);
  EXPECT_EQ(Judge(schema, R"({ "a" : 1, "b": [1, {"c": null}], "z": "" })"), Verdict::kMatches);
  EXPECT_EQ(Judge(schema, R"({"a":1,"a2":5})"), Verdict::kMatches);
  EXPECT_EQ(Judge(schema, R"({"a":1,"z":1,"a":"x")"), Verdict::kImpossible);
  EXPECT_EQ(Judge(schema, R"({"b":1)"), Verdict::kImpossible);
}

TEST(JsonSchema, ObjectsWithPropertiesHaveNoOthersAtAnyDepth) {
  const std::string person = R"({"type":"object","properties":{"name":{"const":"A"}},"required":["name"]})";
  for (const auto& [schema, begin] : std::vector<std::pair<std::string, std::string>>{
           {person, ""},
           {R"({"type":"array","items":)" + person + "}", "["},
           {R"({"type":"object","properties":{"p":)" + person + "}}", R"({"p":)"},
           {R"({"anyOf":[{"type":"null"},)" + person + "]}", ""},
           {R"({"$defs":{"p":)" + person + R"(},"type":"array","items":{"$ref":"#/$defs/p"}})", "["},
           {R"({"type":"object","additionalProperties":)" + person + "}", R"({"x":)"},
           {R"({"allOf":[)" + person + R"(,{"properties":{"n":{"const":1}},"required":["n"]}]})", ""}}) {
    const auto grammar = CompileFormat(SchemaFormat(schema));
    ASSERT_TRUE(grammar.has_value()) << schema;
    const bool both = schema.find("allOf") != std::string::npos;
    EXPECT_NE(Judge(**grammar, begin + R"({"name":"A")" + (both ? R"(,"n":1})" : "}")), Verdict::kImpossible)
        << schema;
    EXPECT_EQ(Judge(**grammar, begin + R"({"name":"A",)" + (both ? R"("n":1,)" : R"(")")),
              Verdict::kImpossible)
        << schema;
  }
  EXPECT_EQ(Judge(R"({"type":"object","properties":{}})", "{}"), Verdict::kMatches);
  EXPECT_EQ(Judge(R"({"type":"object","properties":{}})", "{\""), Verdict::kImpossible);
  // One that speaks of others is open, and so is one that needs them.
  EXPECT_EQ(
      Judge(
          R"({"allOf":[{"properties":{"a":true}},{"additionalProperties":{"type":"null"}}],"type":"object"})",
          R"({"b":null})"),
      Verdict::kMatches);
  EXPECT_EQ(Judge(R"({"type":"object","properties":{"a":true},"minProperties":2})", R"({"a":1,"b":2})"),
            Verdict::kMatches);
  EXPECT_EQ(Judge(R"({"type":"object","required":["a"]})", R"({"a":1,"b":2})"), Verdict::kMatches);
}

TEST(JsonSchema, CountsOfPropertiesAndItems) {
  const std::string two =
      R"({"properties":{"a":{},"b":{},"c":{}},"additionalProperties":false,"type":"object",)"
      R"("minProperties":2,"maxProperties":2})";
  EXPECT_EQ(Judge(two, R"({"a":1,"c":1})"), Verdict::kMatches);
  EXPECT_EQ(Judge(two, R"({"a":1})"), Verdict::kImpossible);
  EXPECT_EQ(Judge(two, R"({"a":1,"b":1,"c")"), Verdict::kImpossible);
  const std::string items = R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})";
  EXPECT_EQ(Judge(items, "[1,2]"), Verdict::kMatches);
  EXPECT_EQ(Judge(items, "[1,2,3]"), Verdict::kMatches);
  EXPECT_EQ(Judge(items, "[1]"), Verdict::kImpossible);
  EXPECT_EQ(Judge(items, "[1,2,3,4]"), Verdict::kImpossible);
  const std::string many = R"({"type":"array","items":{"enum":["x","yy"]},"minItems":20,"maxItems":21})";
  std::string list = "[\"x\"";
  for (int i = 1; i < 20; ++i) list += ", \"yy\"";
  EXPECT_EQ(Judge(many, list), Verdict::kBeginning);
  EXPECT_EQ(Judge(many, list + "]"), Verdict::kMatches);
  EXPECT_EQ(Judge(many, list + ",\"x\",\"x\""), Verdict::kImpossible);
}

TEST(JsonSchema, AllOfMerges) {
  const std::string schema =
      R"({"$defs":{"base":{"properties":{"id":{"type":"number"}},"required":["id"]}},)"
      R"("allOf":[{"$ref":"#/$defs/base"},{"properties":{"id":{"type":"integer","minimum":3},"n":{"type":"null"}},)"
      R"("required":["n"]}],"type":"object"})";
  EXPECT_EQ(Judge(schema, R"({"id":3,"n":null})"), Verdict::kMatches);
  EXPECT_EQ(Judge(schema, R"({"id":2})"), Verdict::kImpossible);
  EXPECT_EQ(Judge(schema, R"({"id":3.5)"), Verdict::kImpossible);
  EXPECT_EQ(Judge(schema, R"({"id":3})"), Verdict::kImpossible);
  // A property excluded by one cannot be added by the other.
  EXPECT_NE(ErrorOf(R"({"type":"object","allOf":[{"properties":{"a":{}},"additionalProperties":false},)"
                    R"({"properties":{"b":{}},"required":["b"]}]})"),
            "");
}

TEST(JsonSchema, AlternativesWithSiblings) {
  const std::string schema =
      R"({"type":"object","properties":{"k":{"type":"string"},"n":{"type":"integer"}},)"
      R"("additionalProperties":false,"anyOf":[{"required":["k"]},{"required":["n"]}]})";
  EXPECT_EQ(Judge(schema, R"({"k":""})"), Verdict::kMatches);
  EXPECT_EQ(Judge(schema, R"({"n":1})"), Verdict::kMatches);
  EXPECT_EQ(Judge(schema, R"({})"), Verdict::kImpossible);
}

TEST(JsonSchema, EnumsAreFilteredByTheRest) {
  const std::string schema =
      R"({"enum":["a","bbb",1,2.5,null,{"x":[1]}],"type":["string","integer","object"],"maxLength":2})";
  for (const std::string good : {R"("a")", "1", R"({"x":[1]})", R"({ "x": [ 1 ] })"}) {
    EXPECT_EQ(Judge(schema, good), Verdict::kMatches) << good;
  }
  for (const std::string bad : {R"("bbb")", "2.5", "null", R"({"x":[]})"}) {
    EXPECT_NE(Judge(schema, bad), Verdict::kMatches) << bad;
  }
}

TEST(JsonSchema, WideIntegersAreWrittenAsTheSchemaWritesThem) {
  for (const std::string schema :
       {R"({"const":18446744073709551617})", R"({"type":"integer","enum":[1,18446744073709551617]})"}) {
    EXPECT_EQ(Judge(schema, "18446744073709551617"), Verdict::kMatches) << schema;
    EXPECT_EQ(Judge(schema, "18446744073709551616"), Verdict::kImpossible) << schema;
    EXPECT_EQ(Judge(schema, "1.8446744073709552e+19"), Verdict::kImpossible) << schema;
  }
}

TEST(JsonSchema, Strings) {
  const std::string any = R"({"type":"string"})";
  EXPECT_EQ(Judge(any, "\"\\ud83d\\ude00\""), Verdict::kMatches);
  EXPECT_EQ(Judge(any, "\"\\ud83d\""), Verdict::kImpossible);
  EXPECT_EQ(Judge(any, "\"\\ude00"), Verdict::kImpossible);
  EXPECT_EQ(Judge(any, "\"\xC0\x80"), Verdict::kImpossible);
  EXPECT_EQ(Judge(any, "\"\xED\xA0"), Verdict::kImpossible);
  EXPECT_EQ(Judge(any, "\"\n"), Verdict::kImpossible);
  const std::string lengths = R"({"type":"string","minLength":2,"maxLength":3})";
  EXPECT_EQ(Judge(lengths, "\"é\\u00e9\""), Verdict::kMatches);
  EXPECT_EQ(Judge(lengths, "\"😀\""), Verdict::kImpossible);
  EXPECT_EQ(Judge(lengths, "\"😀😀😀\""), Verdict::kMatches);
  const std::string both = R"({"type":"string","pattern":"^a+$","minLength":2,"maxLength":3})";
  EXPECT_EQ(Judge(both, "\"aaa\""), Verdict::kMatches);
  EXPECT_EQ(Judge(both, "\"a\""), Verdict::kImpossible);
  EXPECT_EQ(Judge(R"({"type":"string","pattern":"^\"\\n$"})", R"("\"\n")"), Verdict::kMatches);
}

TEST(JsonSchema, StringFormats) {
  const std::vector<std::pair<std::string, std::pair<std::string, std::string>>> cases = {
      {"date", {"2000-02-29", "1900-02-29"}},
      {"date", {"2024-12-31", "2024-04-31"}},
      {"time", {"23:59:59Z", "24:00:00Z"}},
      {"date-time", {"2024-01-31T10:00:00.5+01:00", "2024-01-31 10:00:00Z"}},
      {"uuid", {"123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-42d3-a456-42661417400"}},
      {"ipv4", {"192.168.0.255", "192.168.0.256"}},
      {"ipv6", {"2001:db8::", "1:2"}},
      {"ipv6", {"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8:9"}},
      {"ipv6", {"::ffff:192.0.2.1", "1::2::3"}},
      {"ipv6", {"2001:DB8::1:0:0:1", "::12345"}},
      {"ipv6", {"::", ":"}},
      {"email", {"A.b+c@example.org", "a..b@example.org"}},
      {"idn-email", {"é@é.org", "é"}},
      {"uuid", {"123E4567-e89b-02d3-a456-426614174000", "123e4567"}},
      {"hostname", {"example.org", "-a.org"}},
      {"uri", {"https://example.org/a/b?c=d#e", "example.org"}},
      {"uri", {"mailto:a@b", "https://a b"}},
      {"uri", {"urn:isbn:0451450523", "1a:b"}},
      {"uri", {"HTTP://[::1]:80/%7Ea", "http://a/%zz"}},
      {"duration", {"P1DT2H", "P"}},
  };
  for (const auto& [format, texts] : cases) {
    const std::string schema = R"({"type":"string","format":")" + format + "\"}";
    EXPECT_EQ(Judge(schema, "\"" + texts.first + "\""), Verdict::kMatches) << format << texts.first;
    EXPECT_NE(Judge(schema, "\"" + texts.second + "\""), Verdict::kMatches) << format;
  }
}

TEST(JsonSchema, WhiteSpaceIsBounded) {
  const std::string schema = R"({"type":"array"})";
  for (const std::string text :
       {"[1,2]", "[1, 2]", "\n[\n    1 ,\n    {\n\t\t\"a\" : 2 } ]\n", "[\r\n  1,\r\n  2\r\n]",
        "[{\"a\": {\"b\" :1}}, 2 ]", "[ ]", "[\n]", "[1]\n"}) {
    EXPECT_EQ(Judge(schema, text), Verdict::kMatches) << text;
  }
  EXPECT_EQ(Judge(schema, "[1\n" + std::string(32, ' ')), Verdict::kBeginning);
  EXPECT_EQ(Judge(schema, "[1\n" + std::string(33, ' ')), Verdict::kImpossible);
  EXPECT_EQ(Judge(schema, "[1\n" + std::string(16, '\t')), Verdict::kBeginning);
  EXPECT_EQ(Judge(schema, "[1\n" + std::string(17, '\t')), Verdict::kImpossible);
  EXPECT_EQ(Judge(schema, "[1\n \t"), Verdict::kImpossible);
  EXPECT_EQ(Judge(schema, "[1,  "), Verdict::kImpossible);
  EXPECT_EQ(Judge(schema, "[1,\n\n"), Verdict::kImpossible);
}

TEST(OutputFormats, JsonRegexAndChoice) {
  using Kind = api::OutputFormat::Kind;
  const auto judge = [](Kind kind, const std::string& text, std::string_view answer) {
    const auto grammar = CompileFormat({kind, text, "format"});
    EXPECT_TRUE(grammar.has_value()) << grammar.error().message;
    return Judge(**grammar, answer);
  };
  EXPECT_EQ(judge(Kind::kJsonObject, "", R"({"b":[{"a":[1e+21,"x"]},null]})"), Verdict::kMatches);
  EXPECT_EQ(judge(Kind::kJsonObject, "", "1"), Verdict::kImpossible);
  EXPECT_EQ(judge(Kind::kJsonObject, "", "[]"), Verdict::kImpossible);
  EXPECT_EQ(judge(Kind::kJsonObject, "", "{}"), Verdict::kMatches);
  EXPECT_EQ(judge(Kind::kChoice, R"(["yes","no","nobody"])", "no"), Verdict::kMatches);
  EXPECT_EQ(judge(Kind::kChoice, R"(["yes","no","nobody"])", "nob"), Verdict::kBeginning);
  EXPECT_EQ(judge(Kind::kRegex, "[a-c]{2}|x", "ab"), Verdict::kMatches);
  EXPECT_EQ(judge(Kind::kRegex, "[a-c]{2}|x", "abc"), Verdict::kImpossible);
}

// Only white space is fixed: strings and numbers are as the model writes them.
TEST(OutputFormats, JsonWithoutWhiteSpace) {
  using Kind = api::OutputFormat::Kind;
  const auto judge = [](Kind kind, const std::string& text, std::string_view answer) {
    const auto grammar = CompileFormat({kind, text, "format"}, {.spaces = false});
    EXPECT_TRUE(grammar.has_value()) << grammar.error().message;
    return Judge(**grammar, answer);
  };
  const std::string schema =
      R"({"type":"object","properties":{"a":{"enum":["yes",{"b":[1,2]}]},"l":{"type":"array","items":{"type":"number"}},)"
      R"("u":{"type":"array","items":{"enum":[1,2]},"uniqueItems":true},"any":{}},"required":["a"]})";
  EXPECT_EQ(judge(Kind::kSchema, schema,
                  R"({"a":"yes","l":[1,2.50,1e2],"u":[2,1],"any":{"x":[null,"\n \/\u0041",9.50]}})"),
            Verdict::kMatches);
  EXPECT_EQ(judge(Kind::kSchema, schema, R"({"a":{"b":[1,2]}})"), Verdict::kMatches);
  for (const std::string_view begin :
       {" ", "{ ", R"({"a" )", R"({"a": )", R"({"a":"yes" )", R"({"a":"yes", )", R"({"a":"yes"} )",
        R"({"a":{ )", R"({"a":{"b":[1, )", R"({"a":"yes","l":[ )", R"({"a":"yes","l":[1, )",
        R"({"a":"yes","u":[1, )", R"({"a":"yes","any":{ )"}) {
    EXPECT_EQ(judge(Kind::kSchema, schema, begin), Verdict::kImpossible) << begin;
    EXPECT_NE(Judge(schema, begin), Verdict::kImpossible) << begin;
  }
  EXPECT_EQ(judge(Kind::kJsonObject, "", R"({"a":[1,{"b":null}]})"), Verdict::kMatches);
  EXPECT_EQ(judge(Kind::kJsonObject, "", R"({"a":[1, )"), Verdict::kImpossible);
  EXPECT_EQ(judge(Kind::kJsonObject, "", "\n"), Verdict::kImpossible);
}

TEST(OutputFormats, Regexes) {
  const std::vector<std::tuple<std::string, std::string, bool>> cases = {
      {"a.c", "abc", true},
      {"a.c", "a\nc", false},
      {"(?:ab)+", "abab", true},
      {"(?<n>a|b)?c", "c", true},
      {"[^a-y]", "z", true},
      {"[^a-y]", "é", true},
      {"\\w\\s\\d", "x 5", true},
      {"\\W", "x", false},
      {"\\u00e9\\x41", "éA", true},
      {"a{2,}", "a", false},
      {"a{2,}", "aaaa", true},
      {"a{1,2}?", "aa", true},
      {"^ab$", "ab", true},
      {"\\.\\*\\/", ".*/", true},
      {"[\\d-]+", "1-2", true},
      {"[]", "", false},
      {"", "", true},
  };
  for (const auto& [pattern, text, matches] : cases) {
    const auto grammar = CompileRegex(pattern);
    if (pattern == "[]") {
      EXPECT_FALSE(grammar.has_value());
      continue;
    }
    ASSERT_TRUE(grammar.has_value()) << pattern << ": " << grammar.error().message;
    EXPECT_EQ(Judge(**grammar, text) == Verdict::kMatches, matches) << pattern;
  }
  for (const std::string bad : {"(", ")", "a**", "*a", "[a", "a{3,2}", "\\", "(?=a)", "(?<!a)b", "\\1",
                                "\\p{Klingon}", "(((a{9999}){9999}){9999})"}) {
    EXPECT_FALSE(CompileRegex(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace quire::runner::constraint
