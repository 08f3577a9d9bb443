// Log-probabilities of a prompt's tokens: those that sampling the same tokens gives, bit by bit, however the
// prompt was computed, and told once.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "runner/engine/testing/engine_harness.h"
#include "runner/engine/testing/engine_subjects.h"

namespace quire::runner::engine {
namespace {

// One token: which it is, its rank, its log-probability, and those of the alternatives.
using Score = std::tuple<api::TokenId, int32_t, std::vector<std::pair<api::TokenId, float>>>;

Score ScoreOf(const api::TokenLogprob& token) {
  Score score{token.chosen.id, token.rank, {{token.chosen.id, token.chosen.logprob}}};
  for (const auto& candidate : token.top) std::get<2>(score).emplace_back(candidate.id, candidate.logprob);
  return score;
}

std::vector<Score> ScoresOf(const std::vector<api::TokenLogprob>& tokens) {
  std::vector<Score> scores;
  for (const auto& token : tokens) scores.push_back(ScoreOf(token));
  return scores;
}

std::vector<api::TokenId> IdsOf(const std::vector<api::TokenLogprob>& tokens) {
  std::vector<api::TokenId> ids;
  for (const auto& token : tokens) ids.push_back(token.chosen.id);
  return ids;
}

// The prompt of `count` tokens that no text needs to mean anything.
api::Request ScoredPrompt(int32_t count, int32_t num_predict = 0) {
  std::vector<api::TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(20 + i * i % 97);
  api::Request request;
  request.prompt = api::TokenPrompt{std::move(tokens)};
  request.params.temperature = 0;
  request.params.num_predict = num_predict;
  request.params.seed = 1;
  request.prompt_logprobs = 2;
  request.logprobs = true;
  request.top_logprobs = 2;
  request.shift = false;
  request.overflow = api::Overflow::kRefuse;
  return request;
}

class PromptLogprobs : public testing::TestWithParam<Subject> {
 protected:
  static std::unique_ptr<EngineHarness> MakeEngine(EngineLimits limits = {}) {
    if (limits.cache_bytes == 0) limits.cache_bytes = kPlenty;
    limits.check_invariants_every = 1;
    return std::make_unique<EngineHarness>(EngineHarnessSetup{.model = GetParam().model,
                                                              .limits = limits,
                                                              .model_stops = false,
                                                              .kv_cache_type = GetParam().kv_cache_type});
  }
};

TEST_P(PromptLogprobs, AreThoseOfSampling) {
  const auto harness = MakeEngine();
  api::Request sampled = ScoredPrompt(70, 30);
  const Outcome answer = harness->Generate(sampled);
  ASSERT_TRUE(answer.finished) << answer.failed->error.message;
  std::vector<api::TokenLogprob> expected;
  for (const auto& delta : answer.deltas) {
    expected.insert(expected.end(), delta.logprobs.begin(), delta.logprobs.end());
  }
  ASSERT_EQ(expected.size(), 30U);
  api::Request request = ScoredPrompt(70);
  auto& tokens = std::get<api::TokenPrompt>(request.prompt).tokens;
  for (const api::TokenId id : IdsOf(expected)) tokens.push_back(id);
  const Outcome outcome = harness->Generate(request);
  ASSERT_TRUE(outcome.finished) << outcome.failed->error.message;
  EXPECT_EQ(outcome.finished->reason, api::FinishReason::kLength);
  EXPECT_EQ(outcome.finished->usage.output_tokens, 0);
  EXPECT_EQ(outcome.text(), "");
  const auto prompt = outcome.prompt();
  ASSERT_EQ(IdsOf(prompt), tokens);
  EXPECT_EQ(prompt.front().rank, 0);
  EXPECT_TRUE(prompt.front().top.empty());
  EXPECT_EQ(ScoresOf({prompt.end() - 30, prompt.end()}), ScoresOf(expected));
  EXPECT_EQ(ScoresOf({prompt.begin(), prompt.begin() + 70}), ScoresOf(answer.prompt()));
}

TEST_P(PromptLogprobs, SameBitsHoweverThePromptIsComputed) {
  const api::Request request = ScoredPrompt(150);
  const auto cold = MakeEngine()->Generate(request);
  ASSERT_TRUE(cold.finished) << cold.failed->error.message;
  const std::vector<Score> scores = ScoresOf(cold.prompt());
  ASSERT_EQ(scores.size(), 150U);
  for (const int32_t chunk : {1, 7, 64, 1 << 20}) {
    EXPECT_EQ(ScoresOf(MakeEngine({.prefill_tokens = chunk})->Generate(request).prompt()), scores) << chunk;
  }
  // Beside others, of the same prompt and of another.
  const auto harness = MakeEngine({.prefill_tokens = 48});
  std::vector<api::RequestId> same;
  for (int i = 0; i < 3; ++i) {
    harness->Submit(Greedy("Count to " + std::to_string(i), 40));
    same.push_back(harness->Submit(request));
  }
  for (const auto id : same) EXPECT_EQ(ScoresOf(harness->Wait(id).prompt()), scores);
  // The prompt is in the caches now; its rows are computed again.
  const Outcome warm = harness->Generate(request);
  EXPECT_EQ(warm.ready->cached_tokens, 0);
  EXPECT_EQ(ScoresOf(warm.prompt()), scores);
  // What it left is of use to others.
  api::Request plain = ScoredPrompt(150, 4);
  plain.prompt_logprobs = -1;
  EXPECT_GT(harness->Generate(plain).ready->cached_tokens, 100);
}

TEST_P(PromptLogprobs, AreToldOnceAcrossPreemptions) {
  const auto reference = MakeEngine();
  const auto request = [](int32_t i) { return ScoredPrompt(140 + i, 40); };
  const auto harness = MakeEngine({.prefill_tokens = 32, .cache_bytes = reference->SequenceBytesOf(2 * 190)});
  std::vector<api::RequestId> ids;
  for (int32_t i = 0; i < 5; ++i) ids.push_back(harness->Submit(request(i)));
  for (int32_t i = 0; i < 5; ++i) {
    const Outcome outcome = harness->Wait(ids[static_cast<size_t>(i)]);
    ASSERT_TRUE(outcome.finished) << outcome.failed->error.message;
    const Outcome expected = reference->Generate(request(i));
    EXPECT_EQ(ScoresOf(outcome.prompt()), ScoresOf(expected.prompt())) << i;
    EXPECT_EQ(outcome.logprobs(), expected.logprobs()) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PromptLogprobs, testing::ValuesIn(Subjects()), NameOf);

// In another runner, after any number of deltas: 3 of the prompt, then those of the answer.
TEST(EnginePromptLogprobs, GoOnInAnotherRunner) {
  const api::Request request = ScoredPrompt(150, 6);
  EngineHarness first({.model_stops = false});
  const Outcome whole = first.Generate(request);
  ASSERT_TRUE(whole.finished) << whole.failed->error.message;
  ASSERT_GT(whole.deltas.size(), 5U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(whole.deltas[i].prompt.size(), i < 2 ? 64U : 22U) << i;
  EngineHarness second({.model_stops = false});
  for (size_t count = 0; count <= whole.deltas.size(); ++count) {
    SCOPED_TRACE(count);
    api::ipc::Resume resume{.tokens = {}, .deltas = static_cast<int64_t>(count)};
    for (size_t i = 0; i < count; ++i) {
      const auto& ids = whole.deltas[i].token_ids;
      resume.tokens.insert(resume.tokens.end(), ids.begin(), ids.end());
    }
    if (!resume.tokens.empty()) resume.tokens.pop_back();
    const Outcome rest = second.Wait(second.Submit(request, std::move(resume)));
    ASSERT_TRUE(rest.finished) << rest.failed->error.message;
    ASSERT_EQ(rest.deltas.size(), whole.deltas.size() - count);
    for (size_t i = 0; i < rest.deltas.size(); ++i) {
      const api::TextDelta& expected = whole.deltas[count + i];
      EXPECT_EQ(ScoresOf(rest.deltas[i].prompt), ScoresOf(expected.prompt));
      EXPECT_EQ(ScoresOf(rest.deltas[i].logprobs), ScoresOf(expected.logprobs));
      EXPECT_EQ(rest.deltas[i].text, expected.text);
      EXPECT_EQ(rest.deltas[i].token_ids, expected.token_ids);
    }
  }
}

// A reader that takes nothing holds the prompt up, not the memory.
TEST(EnginePromptLogprobs, ComeNoFasterThanTheyAreRead) {
  const api::Request request = ScoredPrompt(640);
  EngineHarness harness({.limits = {.prefill_tokens = 64, .cache_bytes = kPlenty}, .model_stops = false});
  const auto scores = ScoresOf(harness.Generate(request).prompt());
  ASSERT_EQ(scores.size(), 640U);
  const auto id = harness.Submit(request, {.credit = 6});
  harness.WaitUntil(id, [](const Outcome& outcome) { return !outcome.deltas.empty(); });
  const auto other = harness.Generate(Greedy("Hello!", 8));
  EXPECT_TRUE(other.finished);
  EXPECT_LT(harness.Now(id).deltas.size(), 3U);
  harness.Post(api::ipc::Credit{id, 200});
  EXPECT_EQ(ScoresOf(harness.Wait(id).prompt()), scores);
}

TEST(EnginePromptLogprobs, TokensAloneNeedNoComputation) {
  EngineHarness harness({.model_stops = false});
  api::Request request = ScoredPrompt(150, 4);
  request.prompt_logprobs = -1;
  request.return_prompt_tokens = true;
  const Outcome first = harness.Generate(request);
  const Outcome again = harness.Generate(request);
  EXPECT_GT(again.ready->cached_tokens, 100);
  for (const Outcome& outcome : {first, again}) {
    EXPECT_EQ(IdsOf(outcome.prompt()), std::get<api::TokenPrompt>(request.prompt).tokens);
    for (const auto& token : outcome.prompt()) EXPECT_EQ(token.rank, 0);
  }
}

TEST(EnginePromptLogprobs, SameWithADraftModel) {
  const api::Request request = ScoredPrompt(100, 20);
  EngineHarness plain({.model_stops = false});
  EngineHarness drafted({.limits = {.cache_bytes = kPlenty, .draft_cache_bytes = kPlenty},
                         .model_stops = false,
                         .draft = "packaging/models/quire-demo-draft-Q8_0.gguf"});
  const Outcome expected = plain.Generate(request);
  const Outcome outcome = drafted.Generate(request);
  ASSERT_TRUE(outcome.finished) << outcome.failed->error.message;
  EXPECT_EQ(ScoresOf(outcome.prompt()), ScoresOf(expected.prompt()));
  EXPECT_EQ(outcome.logprobs(), expected.logprobs());
}

}  // namespace
}  // namespace quire::runner::engine
