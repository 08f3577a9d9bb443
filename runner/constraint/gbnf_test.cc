#include "runner/constraint/gbnf.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "api/base/utf8.h"
#include "runner/constraint/code_points.h"
#include "runner/constraint/testing/byte_matching.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

api::OutputFormat GrammarFormat(std::string text) {
  return {api::OutputFormat::Kind::kGrammar, std::move(text), "grammar"};
}

void ExpectGrammar(const std::string& grammar, const std::vector<std::string>& matching,
                   const std::vector<std::string>& impossible) {
  const auto compiled = CompileFormat(GrammarFormat(grammar));
  ASSERT_TRUE(compiled.has_value()) << grammar << ": " << compiled.error().message;
  for (const std::string& text : matching) {
    EXPECT_EQ(Judge(**compiled, text), Verdict::kMatches) << grammar << " / " << text;
  }
  for (const std::string& text : impossible) {
    EXPECT_EQ(Judge(**compiled, text), Verdict::kImpossible) << grammar << " / " << text;
  }
}

std::string Copies(std::string_view part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

void ExpectError(const std::string& grammar, api::ErrorCode code, const std::string& message) {
  const auto compiled = CompileFormat(GrammarFormat(grammar));
  ASSERT_FALSE(compiled.has_value()) << grammar;
  EXPECT_EQ(compiled.error().code, code) << grammar << ": " << compiled.error().message;
  EXPECT_NE(compiled.error().message.find(message), std::string::npos) << compiled.error().message;
}

TEST(Gbnf, LiteralsSetsAndRepetitions) {
  ExpectGrammar(R"(root ::= "yes" | "no")", {"yes", "no"}, {"maybe", "yesno", "n o"});
  ExpectGrammar(R"(root ::= [a-c]+ [^a-z\n]? "."{2})", {"a..", "abcX..", "a\xE6\x97\xA5.."},
                {"d", "ad", "a\n", "..."});
  ExpectGrammar(R"(root ::= "x"{2,3} | "y"{,2} "!" | "z"{1,})", {"xx", "xxx", "!", "yy!", "z", "zzzz"},
                {"xxxx", "yyy"});
  ExpectGrammar(R"(root ::= "\x41\u00e9\U0001F600\t\"\\\[\]")", {"A\xC3\xA9\xF0\x9F\x98\x80\t\"\\[]"}, {"a"});
  ExpectGrammar(R"(root ::= [\x41-\x43\]] .)", {"A\n", "]x", "B\xC3\xA9"}, {"D"});
  ExpectGrammar(R"(root ::= "a"?*)", {"", "aaa"}, {"b"});
  ExpectGrammar("root ::= [-c] [c-]", {"-c", "c-"}, {"b"});
}

TEST(Gbnf, RulesCommentsAndLineBreaks) {
  ExpectGrammar(
      "# a game of chess\r\n"
      "root ::= (\n"
      "  # the first move\n"
      "  \"1. \" move \" \" move \"\\n\"\n"
      "  ([1-9] [0-9]? \". \" move \" \" move \"\\n\")+\n"
      ") # and no more\n"
      "move ::= (pawn | non-pawn) [+#]?\n"
      "pawn ::= [a-h] [1-8] |\n"
      "  \"O-O\"\n"
      "non-pawn ::= [NBKQR]\n"
      "  | [NBKQR] [a-h]\n"
      "unused_1 ::= \"x\"",
      {"1. e4 e5\n2. N Nf\n", "1. O-O e5+\n12. Q# a1\n"}, {"2", "1. e9", "1. x"});
}

TEST(Gbnf, RecursionHasAStack) {
  const std::string json = R"(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)";
  ExpectGrammar(json, {"{}", R"({"a": [1, 2.5e3, {"b":null}], "c":"\u00e9\n"})", "{ }\n  "},
                {"[", "{\"a\":}", R"({"a"  : 1})", "{]", R"({"a":[1})"});
  ExpectGrammar("root ::= \"(\" root? \")\"", {"()", "((()))"}, {")", "(a"});
  ExpectGrammar("root ::= a\na ::= \"x\" b | \"\"\nb ::= \"y\" a", {"", "xy", "xyxy"}, {"y", "xx"});
}

// A rule that ends with a call leaves nothing to come back to. With a return state for each call, 256 of them
// were more than are followed: such an answer could never end.
TEST(Gbnf, RightRecursionHasNoDepth) {
  const std::string lines(1000, 'x');
  ExpectGrammar("root ::= \"x\" root | \"\"", {lines}, {lines + "y"});
  ExpectGrammar("root ::= \"(\" ws \")\"\nws ::= ([ \\n] ws)?", {"(" + std::string(1000, ' ') + ")"},
                {"( )("});
  ExpectGrammar("root ::= \"x\" more\nmore ::= \"\" | \",\" other\nother ::= \"x\" more",
                {"x" + Copies(",x", 500)}, {"x" + Copies(",x", 500) + "x"});
}

// What may be empty is left out of the parse states: 12 in a row, of 12 each, were more of them than are
// followed before one of them read a byte.
TEST(Gbnf, RulesThatMayBeEmptyMultiplyNothing) {
  const std::string rules = "root ::= a{12} \"!\"\na ::= b{0,12}\nb ::= c{0,12}\nc ::= (\"x\" c \"y\")?";
  ExpectGrammar(rules, {"!", "xy!", "xxyyxy!"}, {"y", "xyy", "x!"});
  ExpectError("root ::= a root | \"y\"\na ::= (\"x\" a \"x\")?", api::ErrorCode::kUnsupported,
              "left-recursive");
  ExpectGrammar("root ::= a \"!\"\na ::= \"\" | \"\"", {"!"}, {"x"});
}

// As many as are followed; one more could never be written.
TEST(Gbnf, AlternativesThatAreNotFollowedAreRefused) {
  const auto alternatives = [](int count) {
    std::string root = "root ::= r0", rules;
    for (int i = 0; i < count; ++i) {
      const std::string rule = "r" + std::to_string(i);
      if (i > 0) root += " | " + rule;
      rules += "\n" + rule + " ::= \"[\" " + rule + " \"]\" | \"" + std::to_string(i) + "\"";
    }
    return root + rules;
  };
  ExpectGrammar(alternatives(255), {"[254]", "[[0]]"}, {"[255]"});
  ExpectError(alternatives(256), api::ErrorCode::kUnsupported,
              "more than 256 objects, arrays or rules may begin");
}

// What no text can come to is not followed.
TEST(Gbnf, AlternativesThatNothingReachesRefuseNothing) {
  std::string grammar = "root ::= \"a\" | [] big\nbig ::= r0", rules;
  for (int i = 0; i < 300; ++i) {
    const std::string rule = "r" + std::to_string(i);
    if (i > 0) grammar += " | " + rule;
    rules += "\n" + rule + " ::= \"[\" " + rule + " \"]\" | \"" + std::to_string(i) + "\"";
  }
  ExpectGrammar(grammar + rules, {"a"}, {"0", "[0]"});
}

// Rules that may be empty are found in one look at each, whatever they wait for: 22 that are called in turn
// took 4 million.
TEST(Gbnf, ManyRulesThatMayBeEmptyTakeLinearWork) {
  std::string sequence, choice, rules;
  for (int i = 0; i < 120; ++i) {
    const std::string rule = "a" + std::to_string(i);
    sequence += rule + " ";
    choice += (i > 0 ? " | " : "") + rule;
    rules += "\n" + rule + " ::= (\"" + std::to_string(i) + ".\" " + rule + ")?";
  }
  ExpectGrammar("root ::= " + sequence + "x\nx ::= (" + choice + ") \"z\" | \"q\" x" + rules,
                {"z", "1.7.z", "7.7.8.qz", "qq9.9.z"}, {"7.1.qy", "zz"});
}

TEST(Gbnf, MasksAreExact) {
  const TestVocabulary vocabulary;
  const auto constraint = Constrain(
      GrammarFormat(
          "root ::= \"{\" pair (\",\" pair)* \"}\"\npair ::= \"\\\"\" [a-z]+ \"\\\":\" (\"12\" | root)"),
      vocabulary);
  for (uint32_t seed = 0; seed < 5; ++seed) {
    std::mt19937 random(seed);
    Walk(constraint, vocabulary, random);
  }
}

TEST(Gbnf, ErrorsNameTheLine) {
  using enum api::ErrorCode;
  ExpectError("", kInvalidArgument, "\"root\" is not defined");
  ExpectError("a ::= \"x\"", kInvalidArgument, "\"root\" is not defined");
  ExpectError("root ::= a\n\nb ::= c", kInvalidArgument, "line 1: the rule \"a\" is not defined");
  ExpectError("root ::= \"x\"\nroot ::= \"y\"", kInvalidArgument,
              "line 2: the rule \"root\" is defined twice");
  ExpectError("root ::= \"x\"\nb = \"y\"", kInvalidArgument, "line 2: \"::=\" is expected");
  ExpectError("root ::= \"x", kInvalidArgument, "closing quote");
  ExpectError("root ::= [x", kInvalidArgument, "without its \"]\"");
  ExpectError("root ::= (\"x\"", kInvalidArgument, "without its \")\"");
  ExpectError("root ::= \"x\")", kInvalidArgument, "unexpected \")\"");
  ExpectError("root ::= *", kInvalidArgument, "repetition of nothing");
  ExpectError("root ::= \"x\"{}", kInvalidArgument, "not a repetition");
  ExpectError("root ::= \"x\"{3,2}", kInvalidArgument, "below its minimum");
  ExpectError("root ::= [b-a]", kInvalidArgument, "range");
  ExpectError("root ::= \"\\q\"", kInvalidArgument, "escape");
  ExpectError("root ::= \"\\uD800\"", kInvalidArgument, "escape");
  ExpectError("root ::= <think> \"x\"", kUnsupported, "references to tokens");
  ExpectError("root ::= !<[7]>", kUnsupported, "references to tokens");
  ExpectError("root ::= root \"x\" | \"y\"", kUnsupported, "left-recursive");
  ExpectError("root ::= a root | \"y\"\na ::= \"x\"*", kUnsupported, "left-recursive");
  ExpectError("root ::= \"x\" root", kUnsupported, "matches no text");
  ExpectError("root ::= \"x\"{0,5000}", kUnsupported, "repetitions");
  ExpectError("root ::= " + std::string(100, '('), kUnsupported, "nested");
}

TEST(Gbnf, LargeGrammarsAreBounded) {
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 5000; ++i)
    chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " \"x\"\n";
  chain += "r5000 ::= \"y\"\n";
  const auto compiled = CompileFormat(GrammarFormat(chain));
  if (!compiled) {
    EXPECT_EQ(compiled.error().code, api::ErrorCode::kUnsupported);
  }
  std::string doubled = "root ::= r0\n";
  for (int i = 0; i < 60; ++i) {
    doubled +=
        "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " r" + std::to_string(i + 1) + "\n";
  }
  doubled += "r60 ::= \"y\"\n";
  const auto small = CompileFormat(GrammarFormat(doubled));
  ASSERT_TRUE(small.has_value()) << small.error().message;
  EXPECT_EQ(Judge(**small, "yyyy"), Verdict::kBeginning);
}

TEST(Gbnf, SetsMayOverlapAndComeInAnyOrder) {
  ExpectGrammar("root ::= [x-za-cb-ec]", {"a", "b", "c", "d", "e", "x", "y", "z"}, {"f", "w", "`", "{"});
  ExpectGrammar("root ::= [^x-za-cb-e]", {"f", "w"}, {"a", "e", "x", "z"});
}

// Sorting the whole set at each character would take 1e11 steps, which nothing counted.
TEST(Gbnf, ASetOfManyCharactersIsReadInLinearWork) {
  std::string set;
  constexpr uint32_t kCharacters = 200'000;
  for (uint32_t i = 0; i < kCharacters; ++i) api::AppendUtf8(set, 0x10000 + 2 * (i * 7919 % kCharacters));
  GrammarBuilder builder;
  const WorkLimit limit(uint64_t{kCharacters} * 100);
  EXPECT_TRUE(Gbnf("root ::= [" + set + "]", builder).has_value());
}

TEST(CodePoints, EveryRangeCountsAsWork) {
  std::vector<CodePoints::Range> ranges;
  for (uint32_t i = 50'000; i-- > 0;) ranges.push_back({2 * i, 2 * i});
  {
    const WorkLimit limit(uint64_t{ranges.size()} * 10);
    EXPECT_EQ(CodePoints(ranges).ranges().size(), ranges.size());
  }
  const WorkLimit limit(ranges.size());
  EXPECT_THROW((void)CodePoints(ranges), WorkStopped);
}

}  // namespace
}  // namespace quire::runner::constraint
