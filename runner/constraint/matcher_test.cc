#include "runner/constraint/matcher.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runner/constraint/schema.h"
#include "runner/constraint/testing/byte_matching.h"

namespace quire::runner::constraint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Says what is wrong with `value` for the keywords that RandomSchema() uses; empty when nothing is.
std::string Check(const api::Json& schema, const api::Json& value, const api::Json& root) {
  if (schema.is_boolean()) return schema.get<bool>() ? "" : "false";
  const auto has = [&](const char* key) { return schema.contains(key); };
  if (has("$ref")) return Check(root["$defs"]["d"], value, root);
  if (has("anyOf")) {
    for (const auto& choice : schema["anyOf"]) {
      if (Check(choice, value, root).empty()) return "";
    }
    return "anyOf";
  }
  if (has("enum")) {
    for (const auto& one : schema["enum"]) {
      if (one == value) return "";
    }
    return "enum";
  }
  if (!has("type")) return "";
  const std::string type = schema["type"];
  if (type == "null") return value.is_null() ? "" : type;
  if (type == "boolean") return value.is_boolean() ? "" : type;
  if (type == "string") {
    if (!value.is_string()) return type;
    const auto& text = value.get_ref<const std::string&>();
    size_t length = 0;
    for (const char c : text) length += (static_cast<uint8_t>(c) & 0xC0U) != 0x80 ? 1 : 0;
    return has("maxLength") && length > schema["maxLength"].get<size_t>() ? "maxLength" : "";
  }
  if (type == "integer" || type == "number") {
    // One beyond 64 bits is read as a float.
    const bool whole = value.is_number() && std::trunc(value.get<double>()) == value.get<double>();
    if (!value.is_number() || (type == "integer" && !whole)) return type;
    return has("minimum") && value.get<double>() < schema["minimum"].get<double>() ? "minimum" : "";
  }
  if (type == "array") {
    if (!value.is_array()) return type;
    if (has("minItems") && value.size() < schema["minItems"].get<size_t>()) return "minItems";
    if (has("maxItems") && value.size() > schema["maxItems"].get<size_t>()) return "maxItems";
    if (has("uniqueItems")) {
      const auto sorted = nlohmann::json::parse(value.dump());  // objects without an order
      for (size_t i = 0; i < sorted.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
          if (sorted[i] == sorted[j]) return "uniqueItems";
        }
      }
    }
    for (const auto& item : value) {
      const std::string wrong = has("items") ? Check(schema["items"], item, root) : "";
      if (!wrong.empty()) return "items/" + wrong;
    }
    return "";
  }
  if (!value.is_object()) return type;
  for (const auto& name : schema["required"]) {
    if (!value.contains(name.get<std::string>())) return "required";
  }
  for (const auto& [name, member] : value.get_ref<const api::Json::object_t&>()) {
    const bool declared = schema["properties"].contains(name);
    if (!declared && has("additionalProperties") && schema["additionalProperties"] == false) return name;
    const std::string wrong = declared ? Check(schema["properties"][name], member, root) : "";
    if (!wrong.empty()) return name + "/" + wrong;
  }
  return "";
}

std::string RandomScalar(std::mt19937& random) {
  constexpr auto kScalars = std::to_array<const char*>({
      R"({"type":"integer"})",
      R"({"type":"integer","minimum":8,"maximum":12})",
      R"({"anyOf":[{"type":"number"},{"type":"null"}]})",
      R"({"type":"number","minimum":0,"maximum":3})",
      R"({"type":"string"})",
      R"({"type":"string","maxLength":1})",
      R"({"anyOf":[{"type":"boolean"},{"type":"string"}]})",
      R"({"enum":["a","ab","abc",1,1.0,12,{"k":[1],"l":2},{"l":2.0,"k":[1]},true]})",
      R"({"anyOf":[{"type":"integer"},{"enum":["name",0.5,12]}]})",
  });
  return kScalars[random() % kScalars.size()];
}

std::string RandomSchema(std::mt19937& random, int depth) {
  const auto pick = [&random](size_t n) { return random() % n; };
  const auto number = [&](size_t n) { return std::to_string(pick(n)); };
  switch (pick(depth > 3 ? 7 : 12)) {
    case 0:
      return R"({"type":"string"})";
    case 1:
      return R"({"type":"string","maxLength":)" + number(6) + "}";
    case 2:
      return R"({"type":"integer","minimum":)" + number(500) + "}";
    case 3:
      return R"({"type":"number"})";
    case 4:
      return R"({"enum":["a","ab",12,null,{"k":[1]}]})";
    case 5:
      return R"({"type":"boolean"})";
    case 6:
      return R"({"type":"array","uniqueItems":true,"minItems":)" + number(3) + R"(,"items":)" +
             RandomScalar(random) + "}";
    case 7:
    case 8:
      return R"({"type":"array","minItems":)" + number(3) + R"(,"maxItems":)" + std::to_string(3 + pick(20)) +
             R"(,"items":)" + RandomSchema(random, depth + 1) + "}";
    case 9:
      return R"({"anyOf":[)" + RandomSchema(random, depth + 1) + "," + RandomSchema(random, depth + 1) + "]}";
    case 10:
      return R"({"anyOf":[{"$ref":"#/$defs/d"},{"type":"null"}]})";
    default:
      break;
  }
  std::string properties;
  std::string required;
  for (const std::string name : {"name", "item", "id", "日", "q\\\"k"}) {
    if (pick(3) == 0) continue;
    properties += (properties.empty() ? "\"" : ",\"") + name + "\":" + RandomSchema(random, depth + 1);
    if (pick(2) == 0) required += (required.empty() ? "\"" : ",\"") + name + "\"";
  }
  return R"({"type":"object","properties":{)" + properties + R"(},"required":[)" + required + "]" +
         (pick(2) == 0 ? R"(,"additionalProperties":false})" : "}");
}

TEST(Matcher, RandomSchemasGiveValidDocumentsAndExactMasks) {
  const TestVocabulary vocabulary;
  std::mt19937 random(20261121);
  for (int round = 0; round < 120; ++round) {
    const std::string inner = RandomSchema(random, 1);
    const std::string schema =
        R"({"$defs":{"d":{"type":"object","properties":{"n":{"anyOf":[{"$ref":"#/$defs/d"},{"type":"null"}]}},)"
        R"("required":["n"]}},"type":"object","properties":{"x":)" +
        inner + R"(},"required":["x"]})";
    SCOPED_TRACE(schema);
    const auto constraint = Constrain(SchemaFormat(schema), vocabulary);
    const auto root = api::ReadJson(schema);
    for (int i = 0; i < 3; ++i) {
      const std::string text = Walk(constraint, vocabulary, random);
      const auto value = api::ReadJson(text);
      ASSERT_TRUE(value.has_value()) << text;
      EXPECT_TRUE(nlohmann::json::accept(text)) << text;  // UTF-8 and surrogates strictly
      EXPECT_EQ(Check(*root, *value, *root), "") << text;
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(Matcher, PatternsLengthsAndFormatsHaveExactMasks) {
  const TestVocabulary vocabulary;
  std::mt19937 random(5);
  for (const std::string schema :
       {R"({"type":"string","pattern":"^[A-Z]{2}-[0-9]{3}$"})", R"({"type":"string","pattern":"\\d+"})",
        R"({"type":"string","format":"date"})", R"({"type":"string","minLength":3,"maxLength":90})",
        R"({"type":"array","items":{"type":"string","pattern":"^(ab|é)*$"},"minItems":1})",
        R"({"type":"number","minimum":-3.5,"exclusiveMaximum":12})", R"({})"}) {
    SCOPED_TRACE(schema);
    const auto constraint = Constrain(SchemaFormat(schema), vocabulary);
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(nlohmann::json::accept(Walk(constraint, vocabulary, random)));
  }
}

TEST(Matcher, EndsExactlyWhereTheGrammarMay) {
  const TestVocabulary vocabulary;
  Matcher matcher(Constrain({api::OutputFormat::Kind::kChoice, R"(["a","ab"])", "format"}, vocabulary));
  EXPECT_FALSE(matcher.Mask().Has(TestVocabulary::kEnd));
  EXPECT_FALSE(matcher.Accept(TestVocabulary::kEnd));
  EXPECT_TRUE(matcher.Accept('a' + 2));
  EXPECT_TRUE(matcher.Mask().Has(TestVocabulary::kEnd));
  EXPECT_EQ(matcher.SingleAllowedToken(), std::nullopt);
  EXPECT_TRUE(matcher.Accept('b' + 2));
  EXPECT_EQ(matcher.SingleAllowedToken(), TestVocabulary::kEnd);
  EXPECT_TRUE(matcher.Accept(TestVocabulary::kEnd));
  EXPECT_TRUE(matcher.Mask().Ids().empty());
}

TEST(Matcher, SpecialTokensAreNoText) {
  const TestVocabulary vocabulary;
  Matcher matcher(Constrain({api::OutputFormat::Kind::kRegex, ".*", "format"}, vocabulary));
  EXPECT_FALSE(matcher.Mask().Has(TestVocabulary::kSpecial));
  EXPECT_FALSE(matcher.Accept(TestVocabulary::kSpecial));
  for (const char c : std::string_view("<call>")) EXPECT_TRUE(matcher.Accept(static_cast<uint8_t>(c) + 2));
}

TEST(Matcher, AVocabularyThatCannotSpellIsStuck) {
  const VocabularyIndex::BytesOf bytes = [](api::TokenId id) {
    return id == 0 ? std::string_view("<end>") : std::string_view("x");
  };
  const auto index = std::make_shared<const VocabularyIndex>(
      2, bytes, [](api::TokenId id) { return id == 0; }, std::unordered_set<api::TokenId>{0});
  Matcher matcher(std::make_shared<Constraint>(*CompileRegex("xy"), index));
  EXPECT_FALSE(matcher.IsDeadEnd());
  EXPECT_TRUE(matcher.Accept(1));
  EXPECT_TRUE(matcher.IsDeadEnd());
}

// Every text has more and more ways to be read. The bound is the same whoever made the masks.
TEST(Matcher, MasksOfAnAmbiguousGrammarAreTooExpensive) {
  const TestVocabulary vocabulary;
  const api::OutputFormat format{
      api::OutputFormat::Kind::kGrammar,
      "root ::= text\ntext ::= word text | \"0\"\nword ::= [^\\x00] word [\\x02]? | [^\\x01]", "grammar"};
  const auto tokens_before_the_bound = [](std::shared_ptr<Constraint> constraint) {
    Matcher matcher(std::move(constraint));
    int tokens = 0;
    for (; tokens < 1000 && !matcher.IsTooExpensive(); ++tokens) EXPECT_TRUE(matcher.Accept('x' + 2));
    EXPECT_TRUE(matcher.Mask().Ids().empty());
    EXPECT_FALSE(matcher.IsComplete());
    return tokens;
  };
  const auto constraint = Constrain(format, vocabulary);
  const int tokens = tokens_before_the_bound(constraint);
  EXPECT_LT(tokens, 1000);
  EXPECT_EQ(tokens_before_the_bound(constraint), tokens);
  EXPECT_EQ(tokens_before_the_bound(Constrain(format, vocabulary)), tokens);
}

// The steps that are left at each position, the one behind the tokens included.
std::vector<uint64_t> MaskSteps(Matcher& matcher, std::span<const api::TokenId> tokens) {
  std::vector<uint64_t> steps{matcher.mask_steps()};
  for (const api::TokenId token : tokens) {
    matcher.Mask();
    EXPECT_TRUE(matcher.Accept(token));
    steps.push_back(matcher.mask_steps());
  }
  return steps;
}

// In another process, where no mask is cached, an answer ends for its work at the token at which it would
// have here.
TEST(Matcher, GoesOnWithTheStepsThatAreLeft) {
  const TestVocabulary vocabulary;
  const auto tokens_of = [](std::string_view text) {
    std::vector<api::TokenId> tokens;
    for (const char c : text) tokens.push_back(static_cast<uint8_t>(c) + 2);
    return tokens;
  };
  const api::OutputFormat ambiguous{
      api::OutputFormat::Kind::kGrammar,
      "root ::= text\ntext ::= word text | \"0\"\nword ::= [^\\x00] word [\\x02]? | [^\\x01]", "grammar"};
  const std::vector<std::pair<api::OutputFormat, std::string>> answers = {
      {ambiguous, std::string(60, 'x')},
      {SchemaFormat(R"({"type":"array","items":{"type":"integer"},"uniqueItems":true})"), "[1,12,3, 4,123]"},
      {SchemaFormat(R"({"type":"object"})"), R"({"a":{"b":[{"c":"d"},{"e":[]}]},"f":0})"}};
  for (const auto& [format, text] : answers) {
    SCOPED_TRACE(format.text);
    const std::vector<api::TokenId> tokens = tokens_of(text);
    Matcher whole(Constrain(format, vocabulary));
    const std::vector<uint64_t> steps = MaskSteps(whole, tokens);
    EXPECT_EQ(whole.IsTooExpensive(), format.text == ambiguous.text);
    for (const size_t cut : {size_t{0}, size_t{1}, tokens.size() / 4, tokens.size() / 2, tokens.size()}) {
      Matcher resumed(Constrain(format, vocabulary));
      for (size_t i = 0; i < cut; ++i) EXPECT_TRUE(resumed.Replay(tokens[i]));
      resumed.RestoreMaskSteps(steps[cut]);
      const std::vector<uint64_t> rest = MaskSteps(resumed, std::span(tokens).subspan(cut));
      EXPECT_TRUE(std::ranges::equal(rest, std::span(steps).subspan(cut))) << cut;
      EXPECT_EQ(resumed.IsTooExpensive(), whole.IsTooExpensive()) << cut;
    }
  }
}

// 200 rules that each begin with all behind them: few states, to which 20,000 calls lead.
TEST(Matcher, MasksAreChargedForEachCallLookedAt) {
  constexpr int kRules = 200;
  std::string grammar = "root ::= \"a\" \"a\" r0?";
  for (int i = 0; i < kRules; ++i) {
    grammar += "\nr" + std::to_string(i) + " ::= \"<\" r199 \">\" | \"" + std::to_string(i) + "\"";
    for (int then = i + 1; then < kRules; ++then) grammar += " | r" + std::to_string(then);
  }
  const TestVocabulary vocabulary;
  Matcher matcher(Constrain({api::OutputFormat::Kind::kGrammar, grammar, "grammar"}, vocabulary));
  matcher.Mask();
  ASSERT_TRUE(matcher.Accept('a' + 2));
  const uint64_t before = matcher.mask_steps();
  matcher.Mask();  // of all tokens that begin with "a", and of what may come behind them
  ASSERT_TRUE(matcher.Accept('a' + 2));
  EXPECT_LT(matcher.mask_steps(), before + 500'000 - kRules * (kRules - 1) / 2);
}

// The same behind a rule's end, for each of 20 rules that may end there.
TEST(Matcher, MasksAreChargedForWhatComesBehindARule) {
  constexpr int kRules = 200, kEnding = 20;
  std::string root, rules;
  for (int i = 0; i < kEnding; ++i) {
    const std::string rule = "a" + std::to_string(i);
    root += (i > 0 ? " | " : "") + rule;
    rules += "\n" + rule + " ::= \"q\" " + rule + " | \"{\"";
  }
  for (int i = 0; i < kRules; ++i) {
    rules += "\nr" + std::to_string(i) + " ::= \"}\" r199 \">\" | \"}" + std::to_string(i) + "\"";
    for (int then = i + 1; then < kRules; ++then) rules += " | r" + std::to_string(then);
  }
  const TestVocabulary vocabulary;
  Matcher matcher(Constrain(
      {api::OutputFormat::Kind::kGrammar, "root ::= (" + root + ") r0" + rules, "grammar"}, vocabulary));
  ASSERT_TRUE(matcher.Accept('q' + 2));
  const uint64_t before = matcher.mask_steps();
  matcher.Mask();
  ASSERT_TRUE(matcher.Accept('q' + 2));
  EXPECT_LT(matcher.mask_steps(), before + 500'000 - kEnding * kRules * (kRules - 1) / 2);
}

// A mask in pieces of some steps. How many pieces.
int MaskInPieces(Matcher& matcher, uint64_t steps) {
  for (int pieces = 1;; ++pieces) {
    uint64_t slice = steps + matcher.repeated_steps();
    if (matcher.PrepareMask(slice)) return pieces;
    EXPECT_EQ(slice, 0U);
  }
}

// Two answers make the masks of one table by turns, in pieces; the third makes its own at once.
TEST(Matcher, PiecesGiveTheSameMasks) {
  const TestVocabulary vocabulary;
  const std::vector<api::OutputFormat> formats = {
      {api::OutputFormat::Kind::kGrammar,
       "root ::= text\ntext ::= word text | \"0\"\nword ::= [^\\x00] word [\\x02]? | [^\\x01]", "grammar"},
      SchemaFormat(R"({"type":"array","items":{"type":"string"},"uniqueItems":true,"minItems":9})"),
      SchemaFormat(R"({"type":"array","items":{"enum":["a","ab","abc",12]},"uniqueItems":true})"),
      SchemaFormat(R"({"type":"object"})")};
  std::mt19937 random(19);
  for (const api::OutputFormat& format : formats) {
    SCOPED_TRACE(format.text);
    Matcher whole(Constrain(format, vocabulary));
    const auto shared = Constrain(format, vocabulary);
    Matcher small(shared), large(shared);
    int pieces = 0;
    for (int i = 0; i < 30; ++i) {
      uint64_t first = 1 + random() % 50;
      large.PrepareMask(first);
      pieces += MaskInPieces(small, 1 + random() % 500);
      MaskInPieces(large, 1000);
      const std::vector<api::TokenId> ids = whole.Mask().Ids();
      ASSERT_EQ(small.Mask().Ids(), ids) << i;
      ASSERT_EQ(large.Mask().Ids(), ids) << i;
      ASSERT_EQ(small.IsTooExpensive(), whole.IsTooExpensive());
      if (ids.empty()) break;
      const api::TokenId next = ids[random() % ids.size()];
      for (Matcher* matcher : {&whole, &small, &large}) ASSERT_TRUE(matcher->Accept(next));
      ASSERT_EQ(small.mask_steps(), whole.mask_steps()) << i;
      ASSERT_EQ(large.mask_steps(), whole.mask_steps()) << i;
    }
    EXPECT_GT(pieces, 10);
  }
}

TEST(Matcher, AMaskInHandIsFinishedBeforeATokenIsAccepted) {
  const TestVocabulary vocabulary;
  const api::OutputFormat format = SchemaFormat(R"({"type":"object"})");
  Matcher whole(Constrain(format, vocabulary)), piece(Constrain(format, vocabulary));
  whole.Mask();
  uint64_t slice = 5;
  EXPECT_FALSE(piece.PrepareMask(slice));
  for (Matcher* matcher : {&whole, &piece}) ASSERT_TRUE(matcher->Accept('{' + 2));
  EXPECT_EQ(piece.mask_steps(), whole.mask_steps());
}

TEST(Matcher, NoMoreStepsThanThereCanBeAreRestored) {
  const TestVocabulary vocabulary;
  Matcher matcher(Constrain(SchemaFormat(R"({"type":"object"})"), vocabulary));
  matcher.RestoreMaskSteps(~uint64_t{0});
  EXPECT_LT(matcher.mask_steps(), 10'000'000U);
  EXPECT_FALSE(matcher.IsTooExpensive());
  Matcher spent(Constrain(SchemaFormat(R"({"type":"object"})"), vocabulary));
  spent.RestoreMaskSteps(0);
  EXPECT_TRUE(spent.IsTooExpensive());
  EXPECT_TRUE(spent.Accept('{' + 2));
  EXPECT_TRUE(spent.IsTooExpensive());
}

TEST(Parts, AMarkerBeginsTheConstraint) {
  const TestVocabulary vocabulary;
  for (const std::string& marker : {std::string("<call>"), SpecialTokenBytes(TestVocabulary::kSpecial)}) {
    GrammarBuilder builder;
    const auto arguments =
        JsonSchema(*api::ReadJson(R"({"type":"object","properties":{"a":{"type":"null"}}})"), builder);
    ASSERT_TRUE(arguments.has_value());
    const ExprRef answer =
        Choice({TextWithout(marker), Sequence({TextUntil(marker), *arguments, Literal("</call>")})});
    const auto grammar = CompileGrammar(answer, builder);
    ASSERT_TRUE(grammar.has_value());
    EXPECT_EQ(Judge(**grammar, "any { text <c"), Verdict::kMatches);
    EXPECT_EQ(Judge(**grammar, "text <<ca" + marker + R"({"a":null})"), Verdict::kBeginning);
    EXPECT_EQ(Judge(**grammar, "text <<ca" + marker + R"({"a":null}</call>)"), Verdict::kMatches);
    EXPECT_EQ(Judge(**grammar, marker + "x"), Verdict::kImpossible);
    Matcher matcher(std::make_shared<Constraint>(*grammar, vocabulary.Index()));
    EXPECT_TRUE(matcher.Accept('{' + 2));
    ExpectExactMask(matcher, vocabulary);
    EXPECT_EQ(matcher.Accept(TestVocabulary::kSpecial), marker != "<call>");
    if (marker == "<call>") {
      for (const char c : marker) EXPECT_TRUE(matcher.Accept(static_cast<uint8_t>(c) + 2));
    }
    ExpectExactMask(matcher, vocabulary);
    EXPECT_TRUE(matcher.Mask().Has('{' + 2));
    EXPECT_FALSE(matcher.Mask().Has('x' + 2));
  }
}

// It is at work while another thread makes the index, and may be canceled.
TEST(ConstraintCache, WhoWaitsForTheIndexIsNotStuck) {
  const TestVocabulary vocabulary;
  std::promise<void> begun, go_on;
  ConstraintCache cache(
      [&] {
        begun.set_value();
        go_on.get_future().wait();
        return vocabulary.Index();
      },
      size_t{8} << 20);
  std::thread first([&] { EXPECT_TRUE(cache.Get(SchemaFormat(R"({"type":"integer"})"))); });
  begun.get_future().wait();
  std::atomic<bool> canceled = false;
  std::atomic<uint64_t> checks = 0;
  std::thread second([&] {
    const WorkBudget budget(std::chrono::hours(1), canceled, &checks);
    EXPECT_THROW((void)cache.Get(SchemaFormat(R"({"type":"integer"})")), WorkStopped);
  });
  while (checks < 2) std::this_thread::yield();
  canceled = true;
  second.join();
  go_on.set_value();
  first.join();
  EXPECT_TRUE(cache.Get(SchemaFormat(R"({"type":"integer"})")));
}

TEST(ConstraintCache, CompilesOnceAndForgetsTheOldest) {
  const TestVocabulary vocabulary;
  int made = 0;
  ConstraintCache cache(
      [&] {
        ++made;
        return vocabulary.Index();
      },
      size_t{8} << 20);
  const auto first = cache.Get(SchemaFormat(R"({"type":"integer"})"));
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(*cache.Get(SchemaFormat(R"({"type":"integer"})")), *first);
  for (int i = 1; i < 200; ++i) {
    ASSERT_TRUE(
        cache
            .Get(SchemaFormat(R"({"type":"string","pattern":"^[ab]{3000}c{)" + std::to_string(i) + R"(}$"})"))
            .has_value());
  }
  EXPECT_EQ(made, 1);
  EXPECT_LT(cache.size(), 100U);
  EXPECT_EQ(*cache.Get(SchemaFormat(R"({"type":"integer"})")), *first);  // it is still used
  const auto failed = cache.Get(SchemaFormat(R"({"contains":{}})"));
  EXPECT_THAT(failed.error().message, HasSubstr("contains"));
  EXPECT_EQ(failed.error().field, "format");
}

}  // namespace
}  // namespace quire::runner::constraint
