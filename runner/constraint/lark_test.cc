#include "runner/constraint/lark.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "api/json/text.h"
#include "runner/constraint/schema.h"
#include "runner/constraint/testing/byte_matching.h"

namespace quire::runner::constraint {
namespace {

using api::Json;

// The grammar that Codex sends with its tool apply_patch.
constexpr std::string_view kPatchGrammar = R"lark(start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
)lark";

using CompiledGrammar = api::Result<std::shared_ptr<const Grammar>>;

CompiledGrammar CompileLark(std::string_view grammar) {
  GrammarBuilder builder;
  auto whole = Lark(grammar, builder, Utf8);
  if (!whole) return std::unexpected(whole.error());
  return CompileGrammar(*whole, builder);
}

void ExpectLark(std::string_view grammar, const std::vector<std::string>& matching,
                const std::vector<std::string>& impossible) {
  const auto compiled = CompileLark(grammar);
  ASSERT_TRUE(compiled.has_value()) << grammar << ": " << compiled.error().message;
  for (const std::string& text : matching) {
    EXPECT_EQ(Judge(**compiled, text), Verdict::kMatches) << grammar << " / " << text;
  }
  for (const std::string& text : impossible) {
    EXPECT_EQ(Judge(**compiled, text), Verdict::kImpossible) << grammar << " / " << text;
  }
}

void ExpectLarkError(std::string_view grammar, api::ErrorCode code, const std::string& message) {
  const auto compiled = CompileLark(grammar);
  ASSERT_FALSE(compiled.has_value()) << grammar;
  EXPECT_EQ(compiled.error().code, code) << grammar << ": " << compiled.error().message;
  EXPECT_NE(compiled.error().message.find(message), std::string::npos) << compiled.error().message;
}

// The arguments of a call whose input follows the grammar.
std::string ArgumentsSchema(std::string_view syntax, std::string_view definition) {
  Json input = {{"type", "string"}};
  input["x-grammar"] = {{"syntax", syntax}, {"definition", definition}};
  Json schema = {{"type", "object"}, {"required", {"input"}}, {"additionalProperties", false}};
  schema["properties"]["input"] = std::move(input);
  return api::DumpJson(schema);
}

std::string ArgumentsOf(std::string_view input) { return api::DumpJson(Json{{"input", input}}); }

TEST(Lark, StringsTerminalsAndRepetitions) {
  ExpectLark("start: \"a\"+ \"b\"? (\"c\" | D)*\nD: \"d\" ~ 2..3\n", {"a", "aab", "acddc", "addd"},
             {"b", "abb", "bd"});
  ExpectLark("start: [\"x\"] _Y ~ 2\n_Y: \"0\"..\"7\"", {"x07", "12"}, {"x8", "xx"});
  ExpectLark("start: \"Ab\"i \"\\t\\x41\\u00e9\\\"\\\\\"", {"aB\tA\u00e9\"\\", "AB\tA\u00e9\"\\"}, {"b"});
  ExpectLark("?start: a -> first\n  | b -> second\n  |\na.2: \"1\"\n!b: \"2\"", {"", "1", "2"}, {"3"});
  ExpectLark("start:\n  | \"a\"", {"", "a"}, {"b"});
  ExpectLark("// words\nstart: \"a\" // one\n # and\n  | \"b\"", {"a", "b"}, {"c"});
}

TEST(Lark, RegularExpressionsAreOfPythonsKind) {
  ExpectLark("start: /[a-c]+/ /x.y/is \"/\" /a\\/b/", {"abcX\ny/a/b"}, {"d"});
  ExpectLark("start: /(.*)/ \"\\n\"", {"\n", "a\r\n", "a\u2028\n"}, {"\n\n"});
  ExpectLarkError("start: /(?=a)b/", api::ErrorCode::kUnsupported,
                  "line 1: unsupported regular expression: look-ahead");
  ExpectLarkError("start: \"a\"\n | /a/x", api::ErrorCode::kUnsupported, "line 2: the flag \"x\"");
  ExpectLarkError("start: /a", api::ErrorCode::kInvalidArgument, "closing \"/\"");
  ExpectLarkError("start: /a)/", api::ErrorCode::kInvalidArgument, "line 1: invalid regular expression");
}

TEST(Lark, ImportsOfCommonAreKnownByName) {
  ExpectLark("%import common.INT -> NUMBER\n%import common (CNAME, WS_INLINE)\nstart: CNAME WS_INLINE NUMBER",
             {"a_1 \t 23"}, {"1a", "a  b"});
  ExpectLark("%import common.SIGNED_NUMBER\nstart: SIGNED_NUMBER", {"-1", "2.5e-3", "+.5", "1."},
             {"e1", "--"});
  ExpectLark("%import common.ESCAPED_STRING\nstart: ESCAPED_STRING", {R"("a\"b")", "\"\""}, {"a", "\"\n"});
  ExpectLark("%import common.C_COMMENT\nstart: C_COMMENT \"x\"", {"/* a * / **/x"}, {"/* a */y", "/**/ */"});
  ExpectLarkError("%import common.NOPE", api::ErrorCode::kUnsupported, "line 1: %import common.NOPE");
  ExpectLarkError("\n%import python.NAME", api::ErrorCode::kUnsupported, "line 2: %import of python.NAME");
}

TEST(Lark, IgnoredTerminalsMayFollowEveryTerminal) {
  ExpectLark(
      "%import common.WS\n%ignore WS\n%ignore \"#\"\nstart: \"a\" pair\npair: \"(\" N \")\"\nN: /[0-9]/ "
      "/[0-9]/",
      {"a(12)", " a\n (#12 )\t", "#a(12)"}, {"a(1 2)", "b"});
}

TEST(Lark, RecursionHasAStack) {
  ExpectLark("start: value\nvalue: list | \"x\"\nlist: \"[\" [value (\",\" value)*] \"]\"",
             {"x", "[]", "[x,[x,[]]]"}, {"[x,,", "[]]"});
  ExpectLarkError("start: start \"x\" | \"y\"", api::ErrorCode::kUnsupported, "left-recursive");
}

TEST(Lark, WhatIsNotSupportedIsNamed) {
  ExpectLarkError("start: a{\"x\"}", api::ErrorCode::kUnsupported, "templates");
  ExpectLarkError("start: \"a\"\n%declare A", api::ErrorCode::kUnsupported, "line 2: %declare");
  ExpectLarkError("start: a", api::ErrorCode::kInvalidArgument, "the rule \"a\" is not defined");
  ExpectLarkError("a: \"x\"", api::ErrorCode::kInvalidArgument, "the rule \"start\" is not defined");
  ExpectLarkError("start: \"a\"\nstart: \"b\"", api::ErrorCode::kInvalidArgument,
                  "line 2: the rule \"start\" is defined twice");
  ExpectLarkError("start: \"a", api::ErrorCode::kInvalidArgument, "closing quote");
  ExpectLarkError("start: \"ab\"..\"c\"", api::ErrorCode::kInvalidArgument, "a range");
  ExpectLarkError("start: \"a\"..\"", api::ErrorCode::kInvalidArgument, "line 1");
  ExpectLarkError("start: ~ 2", api::ErrorCode::kInvalidArgument, "a repetition of nothing");
  ExpectLarkError("start: (\"a\"", api::ErrorCode::kInvalidArgument, "a group without");
  ExpectLarkError("start \"a\"", api::ErrorCode::kInvalidArgument, "\":\" is expected behind \"start\"");
  ExpectLarkError("", api::ErrorCode::kInvalidArgument, "start");
}

TEST(Lark, PatchesAreInsideTheStringOfACall) {
  const std::string schema = ArgumentsSchema("lark", kPatchGrammar);
  const std::string patch =
      "*** Begin Patch\n*** Add File: a \"b\".txt\n+x\\y\n+\n*** Update File: c.py\n*** Move to: d.py\n@@ "
      "def f():\n"
      "-  a\r\n+\tb\n  c\n*** End of File\n*** Delete File: e\n*** End Patch";
  EXPECT_EQ(Judge(schema, ArgumentsOf(patch)), Verdict::kMatches);
  EXPECT_EQ(Judge(schema, ArgumentsOf(patch + "\n")), Verdict::kMatches);
  EXPECT_EQ(Judge(schema, ArgumentsOf("ls")), Verdict::kImpossible);
  EXPECT_EQ(Judge(schema, ArgumentsOf("*** Begin Patch\n*** End Patch")), Verdict::kImpossible);
  EXPECT_EQ(Judge(schema, ArgumentsOf("*** Begin Patch\n*** Add File: \n")), Verdict::kImpossible);
  EXPECT_EQ(Judge(schema, ArgumentsOf("*** Begin Patch\n*** Add File: a\nx")), Verdict::kImpossible);
  const TestVocabulary vocabulary;
  const auto constraint = Constrain(SchemaFormat(schema), vocabulary);
  std::mt19937 random(7);
  Matcher matcher(constraint);
  for (const char c : ArgumentsOf(patch).substr(0, 40)) {
    ExpectExactMask(matcher, vocabulary);
    ASSERT_TRUE(matcher.Accept(static_cast<api::TokenId>(static_cast<uint8_t>(c)) + 2));
  }
}

TEST(Lark, DamagedGrammarsGiveErrorsOrGrammars) {
  const std::string whole =
      std::string(kPatchGrammar) +
      "%ignore /[ ]+/\n%import common (INT, WS)\nn.2: \"a\"..\"z\" ~ 1..3 | [INT] WS? -> x\n";
  std::mt19937 random(5);
  int compiled = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = whole;
    for (uint32_t changes = random() % 4; changes > 0; --changes) {
      const size_t at = random() % text.size();
      const char other = whole[random() % whole.size()];
      switch (random() % 4) {
        case 0:
          text[at] = other;
          break;
        case 1:
          text.erase(at, 1 + random() % 5);
          break;
        case 2:
          text.insert(at, 1, random() % 8 == 0 ? '\xE9' : other);
          break;
        default:
          text.resize(at + 1);
      }
      if (text.empty()) text = "x";
    }
    GrammarBuilder builder;
    const auto expr = Lark(text, builder, JsonCharacter);
    EXPECT_TRUE(expr || !expr.error().message.empty());
    compiled += expr ? 1 : 0;
  }
  EXPECT_GT(compiled, 500);
  EXPECT_LT(compiled, 2500);
}

TEST(Lark, RegularExpressionsOfToolsAreForTheWholeInput) {
  const std::string schema = ArgumentsSchema("regex", "(?i)abc.|x\"y");
  EXPECT_EQ(Judge(schema, ArgumentsOf("aBc\r")), Verdict::kMatches);
  EXPECT_EQ(Judge(schema, ArgumentsOf("x\"y")), Verdict::kMatches);
  EXPECT_EQ(Judge(schema, ArgumentsOf("zabcd")), Verdict::kImpossible);
}

TEST(Lark, AGrammarThatCannotBeEnforcedLeavesFreeText) {
  for (const std::string_view definition :
       {"start: start \"x\" | \"y\"", "start: nothing", "start: /(?=a)b/"}) {
    const Json schema = Json::parse(ArgumentsSchema("lark", definition));
    GrammarBuilder builder;
    const auto loose = JsonSchema(schema, builder, {}, Enforcement::kLoose);
    ASSERT_TRUE(loose.has_value()) << loose.error().message;
    EXPECT_EQ(builder.loosened(), std::set<std::string>{"x-grammar"});
    const auto grammar = CompileGrammar(*loose, builder);
    ASSERT_TRUE(grammar.has_value());
    EXPECT_EQ(Judge(**grammar, ArgumentsOf("any\ntext")), Verdict::kMatches);
    GrammarBuilder strict;
    const auto refused = JsonSchema(schema, strict);
    EXPECT_FALSE(refused.has_value() && CompileGrammar(*refused, strict).has_value()) << definition;
  }
}

}  // namespace
}  // namespace quire::runner::constraint
