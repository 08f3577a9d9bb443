// A request whose runner died goes on in another as if nothing had happened: for every place where its stream
// may have been cut, what comes after it is equal, token by token and bit by bit.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runner/engine/testing/engine_harness.h"
#include "tests/data/test_data.h"

namespace quire::runner::engine {
namespace {

// The daemon's knowledge of an answer after `count` deltas.
api::ipc::Resume After(const Outcome& outcome, size_t count) {
  api::ipc::Resume resume{.tokens = {}, .deltas = static_cast<int64_t>(count)};
  for (size_t i = 0; i < count; ++i) {
    const auto& ids = outcome.deltas[i].token_ids;
    resume.tokens.insert(resume.tokens.end(), ids.begin(), ids.end());
    if (!ids.empty()) resume.state = outcome.deltas[i].state;
    if (outcome.deltas[i].state_at_shift) resume.state_at_shift = outcome.deltas[i].state_at_shift;
  }
  if (!resume.tokens.empty()) resume.tokens.pop_back();
  return resume;
}

void ExpectSameRest(const Outcome& whole, const Outcome& resumed, size_t count) {
  SCOPED_TRACE(count);
  ASSERT_TRUE(resumed.ready && resumed.ended());
  EXPECT_LE(resumed.ready->cached_tokens, resumed.ready->prompt_tokens);
  ASSERT_EQ(resumed.deltas.size(), whole.deltas.size() - count);
  for (size_t i = 0; i < resumed.deltas.size(); ++i) {
    const api::TextDelta& expected = whole.deltas[count + i];
    const api::TextDelta& actual = resumed.deltas[i];
    EXPECT_EQ(actual.text, expected.text);
    EXPECT_EQ(actual.thinking, expected.thinking);
    EXPECT_EQ(actual.token_ids, expected.token_ids);
    EXPECT_EQ(actual.tokens, expected.tokens);
    ASSERT_EQ(actual.state.has_value(), expected.state.has_value());
    if (actual.state) {
      EXPECT_EQ(actual.state->sampler, expected.state->sampler);
      EXPECT_EQ(actual.state->mask_steps, expected.state->mask_steps);
    }
    ASSERT_EQ(actual.logprobs.size(), expected.logprobs.size());
    for (size_t j = 0; j < actual.logprobs.size(); ++j) {
      EXPECT_EQ(actual.logprobs[j].chosen.logprob, expected.logprobs[j].chosen.logprob);
    }
  }
  ASSERT_EQ(resumed.finished.has_value(), whole.finished.has_value());
  if (!resumed.finished) {
    EXPECT_EQ(resumed.failed->error.message, whole.failed->error.message);
    return;
  }
  EXPECT_LE(resumed.finished->usage.cached_tokens, resumed.finished->usage.prompt_tokens);
  EXPECT_EQ(resumed.finished->reason, whole.finished->reason);
  EXPECT_EQ(resumed.finished->stop_string, whole.finished->stop_string);
  EXPECT_EQ(resumed.finished->usage.output_tokens, whole.finished->usage.output_tokens);
  EXPECT_EQ(resumed.finished->usage.prompt_tokens, whole.finished->usage.prompt_tokens);
}

void ExpectResumesAnywhere(const api::Request& request, bool model_stops = true) {
  EngineHarness first({.model_stops = model_stops});
  const Outcome whole = first.Generate(request);
  ASSERT_TRUE(whole.ended());
  ASSERT_GT(whole.deltas.size(), 3U);
  EngineHarness second({.model_stops = model_stops});
  for (size_t count = 0; count <= whole.deltas.size(); ++count) {
    ExpectSameRest(whole, second.Wait(second.Submit(request, After(whole, count))), count);
  }
}

api::Request Seeded(api::Request request) {
  request.params.temperature = 1.2F;
  request.params.seed = 1234;
  request.params.repeat_penalty = 1.3F;
  request.params.presence_penalty = 0.5F;
  return request;
}

api::Request Mirostat(api::Request request, int32_t version) {
  request.params.mirostat = version;
  request.params.mirostat_tau = 3;
  return request;
}

api::Request WithGrammar(api::Request request, std::string grammar) {
  request.format = api::OutputFormat{api::OutputFormat::Kind::kGrammar, std::move(grammar), "format"};
  return request;
}

// A slow reader takes what the runner before had sent while this one builds the prompt.
TEST(EngineResume, CreditThatComesBeforeThePromptIsBuiltIsNotLost) {
  const api::Request request = Greedy("Count to twenty.", 30);
  EngineHarness harness;
  const Outcome whole = harness.Generate(request);
  ASSERT_GT(whole.deltas.size(), 8U);
  api::ipc::Resume resume = After(whole, 2);
  resume.credit = 0;
  ExpectSameRest(whole, harness.Wait(harness.Submit(request, resume, api::ipc::kInitialCredit)), 2);
}

// When that happens depends on the clock. The text that may become a stop string is held back, and no part of
// the answer.
TEST(EngineResume, AnAnswerThatItsTimeEndedGoesOnWithoutRepeating) {
  api::Request request = Greedy("Hello!", 2000);
  request.format = {api::OutputFormat::Kind::kRegex, R"(x\n(ab){900})", "format"};
  std::string stop;
  for (int i = 0; i < 900; ++i) stop += "ab";
  request.params.stop = {stop + "c"};
  EngineHarness first;
  const std::string whole = first.Generate(request).text();
  ASSERT_EQ(whole, "x\n" + stop);
  api::Request timed = request;
  timed.predict_ms_max = 1;
  const Outcome ended = first.Generate(timed);
  ASSERT_TRUE(ended.finished);
  ASSERT_FALSE(ended.deltas.empty());
  EngineHarness second;
  const Outcome rest = second.Wait(second.Submit(request, After(ended, ended.deltas.size())));
  EXPECT_EQ(ended.text() + rest.text(), whole);
}

TEST(EngineResume, Greedy) { ExpectResumesAnywhere(Logged(Greedy("Count to twenty.", 30))); }

TEST(EngineResume, SeededWithPenalties) { ExpectResumesAnywhere(Seeded(Greedy("Tell me a story.", 30))); }

TEST(EngineResume, WithMirostat) {
  for (const int32_t version : {1, 2}) {
    const api::Request request = Mirostat(Seeded(Greedy("Tell me a story.", 24)), version);
    ExpectResumesAnywhere(request);
    ExpectResumesAnywhere(Logged(request));
  }
}

// The last delta has the text that was held back, and goes out once the end is sampled.
TEST(EngineResume, WithMirostatAndTextThatIsHeldBackToTheEnd) {
  api::Request request = Mirostat(Seeded(Greedy("Hello!", 200)), 2);
  EngineHarness harness;
  const Outcome whole = harness.Generate(request);
  ASSERT_TRUE(whole.finished);
  ASSERT_EQ(whole.finished->reason, api::FinishReason::kStop);
  const std::string text = whole.text();
  ASSERT_GT(text.size(), 8U);
  request.params.stop = {text.substr(text.size() - 6) + " never written"};
  ExpectResumesAnywhere(request);
}

// What the masks took before the runner died is not forgotten: it ends at the same token, for the same
// reason.
TEST(EngineResume, WithAFormatThatBecomesTooExpensive) {
  const api::Request request = WithGrammar(
      Greedy("Describe a person.", 64),
      "root ::= [a-z ]{24} text\ntext ::= word text | \"0\"\nword ::= [^\\x00] word [\\x02]? | [^\\x01]");
  EngineHarness harness;
  ASSERT_TRUE(harness.Generate(request).failed);
  ExpectResumesAnywhere(request);
}

// Taking over a long answer with an ambiguous format takes longer than many steps.
TEST(EngineResume, OthersGoOnWhileALongAnswerIsTakenOver) {
  const api::Request request =
      WithGrammar(Greedy("Describe a person.", 800),
                  "root ::= text\ntext ::= word text \"#\"? | \"0\"\nword ::= [a-z ]{4,5}");
  EngineHarness harness({.model_stops = false});
  const api::RequestId first = harness.Submit(request);
  harness.Post(api::ipc::Credit{first, 2000});
  const Outcome whole = harness.Wait(first);
  ASSERT_GT(whole.deltas.size(), 100U) << (whole.failed ? whole.failed->error.message : "");
  const api::RequestId other = harness.Submit(Logged(Greedy("Tell me a story.", 100'000)));
  harness.Post(api::ipc::Credit{other, 1'000'000});
  const size_t begun =
      harness.WaitUntil(other, [](const Outcome& at) { return at.deltas.size() > 5; }).deltas.size();
  const size_t count = whole.deltas.size() - 10;
  const api::RequestId resumed = harness.Submit(request, After(whole, count));
  harness.WaitUntil(resumed, [](const Outcome& at) { return at.ready.has_value(); });
  EXPECT_GT(harness.Now(other).deltas.size(), begun + 2);
  ExpectSameRest(whole, harness.Wait(resumed), count);
  harness.Post(api::ipc::Cancel{other});
}

TEST(EngineResume, WithAnAmbiguousFormat) {
  ExpectResumesAnywhere(
      WithGrammar(Greedy("Describe a person.", 24),
                  "root ::= text\ntext ::= word text \"#\"? | \"0\"\nword ::= [a-z ]{1,3}"));
}

TEST(EngineResume, WithASchema) {
  api::Request request = Seeded(Greedy("Describe a person.", 60));
  request.format = api::OutputFormat{
      api::OutputFormat::Kind::kSchema,
      R"({"type":"object","properties":{"name":{"type":"string"},"tags":{"type":"array",)"
      R"("items":{"enum":["a","b","c","d"]},"uniqueItems":true,"minItems":3}},"required":["name","tags"]})",
      "format"};
  ExpectResumesAnywhere(request);
  ExpectResumesAnywhere(Logged(request));
}

TEST(EngineResume, WithDryXtcAndTopNSigma) {
  api::Request request = Seeded(Greedy("Count to twenty.", 24));
  request.params.dry_multiplier = 0.8F;
  request.params.xtc_probability = 0.5F;
  request.params.xtc_threshold = 0.05F;
  request.params.top_n_sigma = 3;
  ExpectResumesAnywhere(request);
}

TEST(EngineResume, WhereThinkingIsClosed) {
  api::Request request = Greedy("", 24);
  request.prompt =
      api::ChatPrompt{{{"system", "Think step by step before you answer."}, {"user", "What is 38 + 47?"}}};
  request.thinking_tokens_max = 6;
  ExpectResumesAnywhere(Logged(request));
}

TEST(EngineResume, OneDeltaForEachToken) {
  api::Request request = Seeded(Greedy("Tell me a story.", 20));
  request.delta_per_token = true;
  ExpectResumesAnywhere(request);
}

// One finds in the caches what the other has computed, of the answer too.
TEST(EngineResume, TwiceTheSameRequest) {
  const api::Request request = Seeded(Greedy("Tell me a story.", 60));
  EngineHarness first({.model_stops = false});
  const Outcome whole = first.Generate(request);
  for (const size_t count : {size_t{5}, size_t{20}, size_t{40}}) {
    EngineHarness second({.model_stops = false});
    const auto behind = second.Submit(request, After(whole, count));
    const auto ahead = second.Submit(request, After(whole, count + 5));
    ExpectSameRest(whole, second.Wait(behind), count);
    ExpectSameRest(whole, second.Wait(ahead), count + 5);
  }
}

TEST(EngineResume, StopStringsThatWereHalfWritten) {
  api::Request request = Greedy("Tell me a long story about the sea.", 40);
  EngineHarness harness;
  const std::string text = harness.Generate(request).text();
  ASSERT_GT(text.size(), 24U);
  request.params.stop = {text.substr(text.size() / 2, 8), "never written"};
  ExpectResumesAnywhere(request);
}

TEST(EngineResume, AcrossAShiftOfTheContext) {
  api::Request request = Seeded(Greedy("Tell me a long story about the sea.", 60));
  request.params.num_ctx = 40;
  ExpectResumesAnywhere(request, /*model_stops=*/false);
  ExpectResumesAnywhere(Mirostat(request, 2), /*model_stops=*/false);
  ExpectResumesAnywhere(WithGrammar(request, "root ::= ([a-z] | [a-z ])+"), /*model_stops=*/false);
}

// Holds sequences of about this many tokens.
EngineHarnessSetup SmallCaches(int64_t tokens, std::string model = kDemoModel) {
  const EngineHarness any({.model = model});
  return {.model = std::move(model),
          .limits = {.cache_bytes = any.SequenceBytesOf(tokens)},
          .model_stops = false};
}

// As the daemon does, which knows the context of the first runner.
api::ipc::Resume AfterIn(const EngineHarness& first, const Outcome& outcome, size_t count) {
  api::ipc::Resume resume = After(outcome, count);
  resume.context = first.context_max();
  return resume;
}

TEST(EngineResume, InLargerCachesTheContextEndsWhereItDid) {
  for (const bool shift : {false, true}) {
    api::Request request = Seeded(Greedy("Tell me a long story about the sea.", 150));
    request.shift = shift;
    EngineHarness first(SmallCaches(96));
    const Outcome whole = first.Generate(request);
    ASSERT_TRUE(whole.finished);
    EXPECT_EQ(whole.finished->usage.output_tokens == 150, shift);
    EngineHarness second({.model_stops = false});
    for (size_t count = 0; count <= whole.deltas.size(); count += 10)
      ExpectSameRest(whole, second.Wait(second.Submit(request, AfterIn(first, whole, count))), count);
  }
}

TEST(EngineResume, InSmallerCachesThatHoldItsContext) {
  for (const bool shift : {false, true}) {
    api::Request request = Seeded(Greedy("Tell me a long story about the sea.", 150));
    request.shift = shift;
    request.params.num_ctx = 80;
    EngineHarness first({.model_stops = false});
    const Outcome whole = first.Generate(request);
    ASSERT_TRUE(whole.finished);
    EngineHarness second(SmallCaches(96));
    for (size_t count = 0; count <= whole.deltas.size(); count += 10) {
      api::ipc::Resume resume = After(whole, count);
      resume.context = 80;
      ExpectSameRest(whole, second.Wait(second.Submit(request, resume)), count);
    }
  }
}

// Nothing is sent that would not follow from what the client has.
TEST(EngineResume, SmallerCachesThanItsContextRefuseIt) {
  for (const bool shift : {false, true}) {
    api::Request request = Seeded(Greedy("Tell me a long story about the sea.", 150));
    request.shift = shift;
    EngineHarness first({.model_stops = false});
    const Outcome whole = first.Generate(request);
    EngineHarness second(SmallCaches(96));
    const Outcome refused = second.Wait(second.Submit(request, AfterIn(first, whole, 100)));
    ASSERT_TRUE(refused.failed);
    EXPECT_EQ(refused.failed->error.code, api::ErrorCode::kUnavailable);
    EXPECT_FALSE(refused.ready);
    EXPECT_TRUE(refused.deltas.empty());
  }
}

// The caches of one runner hold more than LongRoPE's original context, those of the other less.
TEST(EngineResume, RotationsDoNotDependOnTheCaches) {
  const std::filesystem::path folder = OwnFolder();
  std::filesystem::copy(test_data::Find("models/llama"), folder, std::filesystem::copy_options::recursive);
  nlohmann::json config = nlohmann::json::parse(std::ifstream(folder / "config.json"));
  config["rope_parameters"] = {{"rope_type", "longrope"},
                               {"rope_theta", 10000.0},
                               {"original_max_position_embeddings", 512},
                               {"long_factor", std::vector<double>(8, 2.0)},
                               {"short_factor", std::vector<double>(8, 1.0)}};
  std::filesystem::remove(folder / "config.json");
  std::ofstream(folder / "config.json") << config;
  const api::Request request = Logged(Greedy("Count to twenty.", 16));
  EngineHarness small(SmallCaches(128, folder.string()));
  EngineHarness large({.model = folder.string(), .model_stops = false});
  ASSERT_LT(small.context_max(), 512);
  ASSERT_GT(large.context_max(), 512);
  const Outcome whole = small.Generate(request);
  ASSERT_TRUE(whole.finished);
  for (const size_t count : {size_t{0}, size_t{8}})
    ExpectSameRest(whole, large.Wait(large.Submit(request, AfterIn(small, whole, count))), count);
  std::filesystem::remove_all(folder);
}

// What the client gets for its tokens and times is that of all runners.
TEST(EngineResume, UsageIsOfAllRunners) {
  const api::Request request = Greedy("Count to twenty.", 30);
  EngineHarness harness({.model_stops = false});
  const Outcome whole = harness.Generate(request);
  ASSERT_TRUE(whole.finished);
  constexpr int64_t kHour = 3'600'000'000'000;
  api::ipc::Resume resume = After(whole, 8);
  resume.spent =
      api::ipc::Spent{.cached_tokens = 2, .queue_ns = kHour, .prompt_ns = 2 * kHour, .output_ns = 3 * kHour};
  const Outcome resumed = harness.Wait(harness.Submit(request, resume));
  ASSERT_TRUE(resumed.finished && resumed.ready);
  const api::Usage& usage = resumed.finished->usage;
  EXPECT_GT(resumed.ready->cached_tokens, 2) << "the harness has computed it";
  EXPECT_EQ(usage.cached_tokens, 2);
  EXPECT_EQ(usage.queue_ns, kHour);
  EXPECT_EQ(usage.prompt_ns, 2 * kHour) << "what is computed again is not its prompt's";
  EXPECT_GT(usage.output_ns, 3 * kHour);
  EXPECT_LT(usage.output_ns, 4 * kHour);
  resume = After(whole, 0);
  resume.spent = api::ipc::Spent{.prompt_ns = 2 * kHour};
  const Outcome again = harness.Wait(harness.Submit(request, resume));
  ASSERT_TRUE(again.finished);
  EXPECT_GT(again.finished->usage.prompt_ns, 2 * kHour) << "no token came of it before";
}

// t_max_predict_ms does not begin again.
TEST(EngineResume, TheTimeOfAnAnswerIsThatInAllRunners) {
  api::Request request = WithGrammar(Greedy("Count to twenty.", 40), R"(root ::= ("a\n" | "b\n")+)");
  request.predict_ms_max = 3'600'000;
  EngineHarness harness({.model_stops = false});
  const Outcome whole = harness.Generate(request);
  ASSERT_TRUE(whole.finished);
  ASSERT_EQ(whole.finished->usage.output_tokens, 40);
  api::ipc::Resume resume = After(whole, 8);
  resume.spent = api::ipc::Spent{.output_ns = 3'600'000'000'000};
  const Outcome resumed = harness.Wait(harness.Submit(request, resume));
  ASSERT_TRUE(resumed.finished);
  EXPECT_LT(resumed.finished->usage.output_tokens, 20);
}

// The template shows the time of the request, not that at which a runner renders it.
TEST(EngineResume, WithATemplateThatShowsTheTime) {
  api::Request request = Logged(Greedy("", 16));
  request.prompt = api::ContinuedPrompt{{}, {{"user", "Count to twenty."}}};
  request.go_template = "{{ currentDate }} {{ .Prompt }}";
  request.now_s = 86'400 * 10'000;  // a day of 1997
  EngineHarness first({.model_stops = false});
  const Outcome whole = first.Generate(request);
  ASSERT_TRUE(whole.finished);
  EngineHarness second({.model_stops = false});
  ExpectSameRest(whole, second.Wait(second.Submit(request, After(whole, 6))), 6);
  request.now_s += 86'400;
  EXPECT_NE(second.Generate(request).logprobs(), whole.logprobs());
  request.now_s = 0;
  EXPECT_NE(second.Generate(request).logprobs(), whole.logprobs()) << "today";
}

// A model of each kind of recurrent state: no earlier token can be taken out of one again, so the next runner
// computes it again, or restores it and continues.
class EngineResumeOf : public testing::TestWithParam<const char*> {
 protected:
  static EngineHarnessSetup Setup(const std::string& model) { return {.model = model, .model_stops = false}; }
};

TEST_P(EngineResumeOf, AKilledRunnerGoesOnInAnother) {
  const std::filesystem::path model = test_data::Find(std::filesystem::path("models") / GetParam());
  if (model.empty()) GTEST_SKIP() << "no models/" << GetParam();
  const api::Request request = Logged(Seeded(Greedy("Count to twenty, and tell me a story.", 16)));
  EngineHarness first(Setup(model.string()));
  const Outcome whole = first.Generate(request);
  ASSERT_TRUE(whole.finished);
  ASSERT_GT(whole.deltas.size(), 4U);
  for (const size_t count : {size_t{0}, size_t{1}, whole.deltas.size() / 2, whole.deltas.size() - 1}) {
    EngineHarness second(Setup(model.string()));
    ExpectSameRest(whole, second.Wait(second.Submit(request, After(whole, count))), count);
    // Killed once more, and back in a runner that has its prefix.
    ExpectSameRest(whole, second.Wait(second.Submit(request, After(whole, count))), count);
  }
}

// Short convolutions, delta nets, Mamba-2 before attention and beside it, Mamba-1, Mamba-2 alone, with
// experts.
INSTANTIATE_TEST_SUITE_P(States, EngineResumeOf,
                         testing::Values("lfm2", "qwen3_next", "granitemoehybrid", "falcon_h1", "jamba",
                                         "mamba2", "nemotron_h_moe"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace quire::runner::engine
