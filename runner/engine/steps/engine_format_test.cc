// Answers with a format, by the engine with the bundled model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runner/engine/testing/engine_harness.h"

namespace quire::runner::engine {
namespace {

using Kind = api::OutputFormat::Kind;
using testing::AnyOf;
using testing::HasSubstr;

constexpr const char* kPerson =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},)"
    R"("age":{"type":"integer","minimum":0,"maximum":120},"mood":{"enum":["happy","sad"]}},)"
    R"("required":["name","age","mood"],"additionalProperties":false})";

api::Request With(api::Request request, Kind kind, std::string text = {}) {
  request.format = api::OutputFormat{kind, std::move(text), "format"};
  return request;
}

api::Request Warm(api::Request request, int64_t seed) {
  request.params.temperature = 1;
  request.params.top_k = 0;
  request.params.top_p = 1;
  request.params.seed = seed;
  return request;
}

void ExpectPerson(const std::string& text) {
  const auto person = nlohmann::json::parse(text, nullptr, false);
  ASSERT_TRUE(person.is_object()) << text;
  EXPECT_EQ(person.size(), 3U) << text;
  EXPECT_TRUE(person["name"].is_string()) << text;
  EXPECT_TRUE(person["age"].is_number_integer() && person["age"] >= 0 && person["age"] <= 120) << text;
  EXPECT_THAT(person["mood"], AnyOf("happy", "sad")) << text;
}

TEST(EngineFormat, EveryAnswerIsAValidDocument) {
  EngineHarness harness;
  std::vector<api::RequestId> ids;
  for (int64_t seed = 0; seed < 20; ++seed) {
    ids.push_back(
        harness.Submit(With(Warm(Greedy("Describe a person.", 300), seed), Kind::kSchema, kPerson)));
  }
  for (const auto id : ids) {
    const auto outcome = harness.Wait(id);
    ASSERT_TRUE(outcome.finished);
    EXPECT_EQ(outcome.finished->reason, api::FinishReason::kStop);
    ExpectPerson(outcome.text());
  }
}

// Its masks would take longer than a runner may stand still.
TEST(EngineFormat, AnAmbiguousGrammarFailsAlone) {
  EngineHarness harness;
  const auto other = harness.Submit(Greedy("Describe a person.", 8));
  const auto outcome = harness.Wait(harness.Submit(
      With(Greedy("Describe a person.", 64), Kind::kGrammar,
           "root ::= text\ntext ::= word text | \"0\"\nword ::= [^\\x00] word [\\x02]? | [^\\x01]")));
  ASSERT_TRUE(outcome.failed);
  EXPECT_EQ(outcome.failed->error.code, api::ErrorCode::kUnsupported);
  EXPECT_THAT(outcome.failed->error.message, HasSubstr("too ambiguous"));
  EXPECT_TRUE(harness.Wait(other).finished);
}

// Behind "Q" a text can be read in 1,190 ways, of which those that go on with "K" are not followed: what is
// forced then is only the first of what may come.
TEST(EngineFormat, WhatIsForcedBehindACutOffIsNoAnswer) {
  EngineHarness harness({.model_stops = false});
  std::string root = "root ::= r0", inner = "s0", rules = "\nu ::= \"K\" | [] u";
  for (int i = 1; i < 11; ++i) inner += " | s" + std::to_string(i);
  for (int i = 0; i < 11; ++i) rules += "\ns" + std::to_string(i) + " ::= \"J\" | [] s" + std::to_string(i);
  for (int i = 0; i < 100; ++i) {
    const std::string rule = "r" + std::to_string(i);
    if (i > 0) root += " | " + rule;
    rules += "\n" + rule + " ::= \"Q\" (" + (i < 99 ? inner : "u") + ") \"X\" | [] " + rule;
  }
  const auto request = With(Greedy("Describe a person.", 64), Kind::kGrammar, root + rules);
  for (int made = 0; made < 3; ++made) {  // the later ones find masks made
    const auto outcome = harness.Generate(request);
    ASSERT_TRUE(outcome.failed) << outcome.text();
    EXPECT_THAT(outcome.failed->error.message, HasSubstr("too many ways"));
  }
}

// One token whose mask takes most of what an answer may take: three ways to read each of some letters, also
// within a token.
api::Request CostlyRequest(const std::string& text) {
  EngineHarness harness;
  for (char last = 'z'; last > 'a'; --last) {
    std::string grammar = "root ::= p\np ::= \"0\"", ways;
    for (const std::string way : {"1", "2", "3"}) {
      grammar += " | q" + way + " p \"" + way + "\"";
      ways += "\nq" + way + " ::= [a-" + last + "] | \"\\x01\" q" + way + " \"\\x02\"";
    }
    auto request = With(Greedy(text, 1), Kind::kGrammar, grammar + ways);
    if (!harness.Generate(request).failed) return request;
  }
  ADD_FAILURE() << "all are too costly";
  return Greedy(text, 1);
}

// Masks of several answers that do not fit one step go on in the next, while others take part in both.
TEST(EngineFormat, AnswersThatWaitForTheirMasksAreTheSame) {
  const api::Request request = CostlyRequest("Describe a person.");
  std::string alone;
  for (const int answers : {1, 20}) {
    EngineHarness harness({.limits = {.prefill_tokens = 512, .cache_bytes = kPlenty}, .starts = false});
    const auto plain = harness.Submit(Greedy("What is the capital of France?", 3));
    std::vector<api::RequestId> ids;
    for (int i = 0; i < answers; ++i) ids.push_back(harness.Submit(request));
    harness.Start();
    for (const auto id : ids) {
      const auto outcome = harness.Wait(id);
      ASSERT_FALSE(outcome.failed) << outcome.failed->error.message;
      ASSERT_FALSE(outcome.text().empty());
      if (answers == 1) alone = outcome.text();
      EXPECT_EQ(outcome.text(), alone);
    }
    harness.Wait(plain);
    EXPECT_EQ(harness.Ended().front() == plain, answers > 1) << answers;
  }
}

// A mask is needed where a token is sampled: the prompt is computed meanwhile, and others wait for what they
// share of it.
TEST(EngineFormat, PromptsDoNotWaitForMasks) {
  EngineHarness harness({.limits = {.prefill_tokens = 16, .cache_bytes = kPlenty}, .starts = false});
  std::string text = "Describe a person";
  for (int word = 0; word < 100; ++word) text += " and another person";
  api::Request request = CostlyRequest(text);
  std::vector<api::RequestId> ids;
  for (int i = 0; i < 12; ++i) {
    request.client.exchange = std::to_string(i);
    request.client.party = fair::PartyNamed("10.0.0." + std::to_string(i));
    ids.push_back(harness.Submit(request));
  }
  harness.Start();
  int32_t prompt = 0;
  for (const auto id : ids) {
    const auto outcome = harness.Wait(id);
    EXPECT_TRUE(outcome.finished);
    prompt = outcome.ready->prompt_tokens;
  }
  ASSERT_GT(prompt, 200);
  EXPECT_LT(harness.Stopped().stats().prompt_tokens_computed, static_cast<uint64_t>(prompt) * 3 / 2);
}

// Parse states of all answers have one limit; the party with the most exceeds it.
TEST(EngineFormat, MemoryOfParseStatesIsBoundedForAllAnswersTogether) {
  EngineHarness roomy;
  const auto zero = roomy.Generate(With(Greedy("Hello!", 4), Kind::kGrammar, "root ::= \"0\""));
  ASSERT_FALSE(zero.deltas.empty());
  auto deep = With(Greedy("Hello!", 300), Kind::kGrammar, "root ::= \"[\" root \"]\" | \"0\"");
  deep.params.logit_bias = {{zero.deltas[0].token_ids[0], -api::kLogitBiasMax}};
  deep.client.party = fair::PartyNamed("deep");
  auto shallow = With(Greedy("Describe a person.", 300), Kind::kSchema, kPerson);
  shallow.client.party = fair::PartyNamed("shallow");
  const auto run = [&](EngineHarness& harness) {
    const auto large = harness.Submit(deep), small = harness.Submit(shallow);
    harness.Post(api::ipc::Credit{large, 1000});
    ExpectPerson(harness.Wait(small).text());
    return harness.Wait(large);
  };
  EXPECT_TRUE(run(roomy).finished);
  EngineLimits limits{.cache_bytes = kPlenty};
  limits.parse_bytes = size_t{3} << 10;
  EngineHarness narrow({.limits = limits});
  const auto outcome = run(narrow);
  ASSERT_TRUE(outcome.failed) << outcome.text();
  EXPECT_EQ(outcome.failed->error.code, api::ErrorCode::kUnsupported);
  EXPECT_THAT(outcome.failed->error.message, HasSubstr("too much memory"));
}

TEST(EngineFormat, GrammarsOfLlamaCpp) {
  EngineHarness harness;
  const std::string list = "root ::= item{2}\nitem ::= \"- \" [a-z]{1,8} \"\\n\"";
  for (int64_t seed = 0; seed < 5; ++seed) {
    const auto outcome = harness.Generate(With(Warm(Greedy("A list", 200), seed), Kind::kGrammar, list));
    ASSERT_TRUE(outcome.finished);
    EXPECT_EQ(outcome.finished->reason, api::FinishReason::kStop);
    EXPECT_THAT(outcome.text(), testing::MatchesRegex("- [a-z]+\n- [a-z]+\n"));
  }
  const auto broken = harness.Generate(With(Greedy("A list"), Kind::kGrammar, "root ::= item"));
  ASSERT_TRUE(broken.failed);
  EXPECT_EQ(broken.failed->error.code, api::ErrorCode::kInvalidArgument);
  EXPECT_THAT(broken.failed->error.message, HasSubstr("format: line 1"));
}

TEST(EngineFormat, TimeAndIndentationEndAnAnswerAndNeverChangeIt) {
  EngineHarness harness;
  // Lines with and without indentation, forced by a grammar.
  const auto lines =
      With(Greedy("Code", 400), Kind::kGrammar, R"(root ::= "a;\n    b;\n  c;\n" ([a-z] "\n")*)");
  const std::string whole = harness.Generate(lines).text();
  auto indented = lines;
  indented.indent_min = 4;
  const auto cut = harness.Generate(indented);
  EXPECT_EQ(cut.text(), "a;\n    b;\n  ");
  EXPECT_EQ(cut.finished->reason, api::FinishReason::kLength);
  auto timed = lines;
  timed.predict_ms_max = 1;
  const std::string early = harness.Generate(timed).text();
  EXPECT_THAT(whole, testing::StartsWith(early));
  EXPECT_THAT(early, HasSubstr("a;")) << "behind a line break, which may be held back";
}

TEST(EngineFormat, GoesTogetherWithPenaltiesFiltersAndLogprobs) {
  EngineHarness harness;
  auto request = With(Warm(Greedy("Describe a person.", 300), 3), Kind::kSchema, kPerson);
  request.params.repeat_penalty = 1.3F;
  request.params.frequency_penalty = 0.5F;
  request.params.min_p = 0.05F;
  request.params.top_k = 20;
  request.params.typical_p = 0.9F;
  const auto plain = harness.Generate(request);
  ExpectPerson(plain.text());
  // With log-probabilities every token is computed, none is forced: the same text.
  const auto logged = harness.Generate(Logged(request));
  EXPECT_EQ(logged.text(), plain.text());
  EXPECT_EQ(static_cast<int32_t>(logged.logprobs().size()), logged.finished->usage.output_tokens);
  EXPECT_EQ(plain.finished->usage.output_tokens, logged.finished->usage.output_tokens);
}

TEST(EngineFormat, ForcedTokensChangeNothing) {
  // Long runs without a choice: nearly every byte of them is a token that must come.
  const std::string list = R"(["Zzyzx-\u0001\u0002\u0003\u0004-qqq","Yes"])";
  for (const int64_t seed : {1, 2, 3, 4, 5, 6}) {
    EngineHarness harness;
    const auto request = With(Warm(Greedy("Hello!", 200), seed), Kind::kChoice, list);
    const auto forced = harness.Generate(request);
    ASSERT_TRUE(forced.finished);
    const auto computed = harness.Generate(Logged(request));
    EXPECT_EQ(forced.text(), computed.text());
    EXPECT_EQ(forced.finished->usage.output_tokens, computed.finished->usage.output_tokens);
    EXPECT_THAT(forced.text(), AnyOf("Yes", "Zzyzx-\x01\x02\x03\x04-qqq"));
  }
}

TEST(EngineFormat, TheSameAloneAndInABatch) {
  const auto request = With(Warm(Greedy("Describe a person.", 300), 11), Kind::kSchema, kPerson);
  const auto alone = EngineHarness().Generate(request);
  EngineHarness busy({.limits = {.prefill_tokens = 24, .cache_bytes = kPlenty}});
  std::vector<api::RequestId> others;
  for (int i = 0; i < 8; ++i) {
    auto other = Greedy("What is the capital of country " + std::to_string(i) + "?", 10 + i);
    others.push_back(busy.Submit(i % 2 == 0 ? With(other, Kind::kJsonObject) : other));
  }
  EXPECT_EQ(busy.Generate(request).text(), alone.text());
  for (const auto id : others) EXPECT_TRUE(busy.Wait(id).finished);
}

TEST(EngineFormat, AnAnswerCutByLengthIsTheBeginningOfOne) {
  EngineHarness harness;
  const auto outcome = harness.Generate(With(Greedy("Describe a person.", 4), Kind::kSchema, kPerson));
  EXPECT_EQ(outcome.finished->reason, api::FinishReason::kLength);
  EXPECT_THAT(outcome.text(), testing::StartsWith("{"));
}

TEST(EngineFormat, WithoutEosTokensTheDocumentEnds) {
  EngineHarness harness({.model_stops = false});
  const auto outcome = harness.Generate(With(Greedy("Hello!", 60), Kind::kChoice, R"(["Hello","Hi"])"));
  ASSERT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.finished->reason, api::FinishReason::kStop);
  EXPECT_THAT(outcome.text(), AnyOf("Hello", "Hi"));
}

TEST(EngineFormat, ItHoldsAgainstBiasesAndWishesForMoreTokens) {
  EngineHarness harness;
  const auto request = With(Warm(Greedy("Hello!", 60), 5), Kind::kChoice, R"(["Hello","Hi"])");
  auto longer = request;
  longer.params.min_tokens = 30;
  longer.params.ignore_eos = true;
  auto banned = request;
  for (api::TokenId id = 0; id < 300; ++id) banned.params.logit_bias.push_back({id, -api::kLogitBiasMax});
  auto forced = request;
  forced.params.logit_bias = {{7, api::kLogitBiasMax}};
  for (const auto& one : {longer, banned, forced}) {
    const auto outcome = harness.Generate(one);
    ASSERT_TRUE(outcome.finished);
    EXPECT_EQ(outcome.finished->reason, api::FinishReason::kStop);
    EXPECT_THAT(outcome.text(), AnyOf("Hello", "Hi"));
  }
}

TEST(EngineFormat, ForcedTokensWaitForTheReader) {
  EngineHarness harness;
  auto request = With(Greedy("Hello!", 5000), Kind::kRegex, "(ab){1000}");
  request.delta_per_token = true;
  const auto id = harness.Submit(request);
  const size_t credit = api::ipc::kInitialCredit;
  const auto full = harness.WaitUntil(
      id, [&](const Outcome& outcome) { return outcome.ended() || outcome.deltas.size() >= credit - 8; });
  ASSERT_FALSE(full.ended());
  EXPECT_TRUE(harness.Generate(Greedy("Hello!")).finished);
  EXPECT_LE(harness.Now(id).deltas.size(), credit);
  harness.Post(api::ipc::Credit{id, 5000});
  EXPECT_EQ(harness.Wait(id).text().size(), 2000U);
}

TEST(EngineFormat, TheSameFromACachedPrompt) {
  EngineHarness harness;
  const auto request = With(Warm(Greedy("Describe a person.", 300), 12), Kind::kSchema, kPerson);
  const auto cold = harness.Generate(request);
  const auto cached = harness.Generate(request);
  EXPECT_GT(cached.ready->cached_tokens, 0);
  EXPECT_EQ(cached.text(), cold.text());
  EXPECT_EQ(harness.Generate(Logged(request)).logprobs(),
            EngineHarness().Generate(Logged(request)).logprobs());
}

TEST(EngineFormat, WhatIsNotSupportedFailsBeforeTheFirstToken) {
  EngineHarness harness;
  const auto outcome =
      harness.Generate(With(Greedy("Hello!"), Kind::kSchema, R"({"properties":{"a":{"contains":{}}}})"));
  ASSERT_TRUE(outcome.failed);
  EXPECT_EQ(outcome.failed->error.code, api::ErrorCode::kUnsupported);
  EXPECT_THAT(outcome.failed->error.message, HasSubstr("#/properties/a"));
  EXPECT_THAT(outcome.failed->error.message, HasSubstr("\"contains\""));
}

}  // namespace
}  // namespace quire::runner::engine
