// The engine with the bundled model, driven as the host drives it, without processes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <set>

#include "runner/engine/testing/engine_harness.h"

namespace quire::runner::engine {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

TEST(Engine, AnswersWithTrueCounts) {
  EngineHarness harness;
  const auto outcome = harness.Generate(Greedy("Hello!"));
  ASSERT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.text(), "Hello! How can I help you?");
  EXPECT_EQ(outcome.finished->reason, api::FinishReason::kStop);
  EXPECT_EQ(outcome.finished->usage.prompt_tokens, 11);
  EXPECT_EQ(outcome.ready->prompt_tokens, 11);
  EXPECT_EQ(outcome.finished->usage.output_tokens, 8);
  int32_t tokens = 0;
  for (const auto& delta : outcome.deltas) tokens += delta.tokens;
  EXPECT_EQ(tokens, 8);
  EXPECT_GT(outcome.finished->usage.prompt_ns, 0);
  EXPECT_GT(outcome.finished->usage.output_ns, 0);
}

TEST(Engine, TheSameBitsAloneBatchedChunkedAndThreaded) {
  const auto request = Logged(Greedy("Tell me a story about a fox and a river.", 48));
  const auto alone = EngineHarness().Generate(request);
  ASSERT_THAT(alone.logprobs(), SizeIs(testing::Gt(20)));
  for (const int32_t chunk : {1, 7, 16}) {
    EngineHarness chunked({.limits = {.prefill_tokens = chunk, .cache_bytes = kPlenty}, .threads = 1});
    EXPECT_EQ(chunked.Generate(request).logprobs(), alone.logprobs()) << "chunks of " << chunk;
  }
  EngineHarness busy({.limits = {.prefill_tokens = 24, .cache_bytes = kPlenty}});
  std::vector<api::RequestId> others;
  for (int i = 0; i < 15; ++i) {
    others.push_back(
        busy.Submit(Greedy("What is the capital of country number " + std::to_string(i) + "?", 5 + 3 * i)));
  }
  const auto beside = busy.Submit(request);
  busy.Post(api::ipc::Cancel{others[3]});
  EXPECT_EQ(busy.Wait(beside).logprobs(), alone.logprobs());
}

TEST(Engine, MoreRequestsThanSequencesAllEnd) {
  EngineHarness harness({.limits = {.running_max = 3, .cache_bytes = kPlenty}});
  std::vector<api::RequestId> ids;
  for (int i = 0; i < 20; ++i) ids.push_back(harness.Submit(Greedy("Hello!", 30)));
  for (const auto id : ids) EXPECT_EQ(harness.Wait(id).text(), "Hello! How can I help you?");
}

TEST(Engine, AnIdleTenantNeedNotWaitForTheEndOfAnother) {
  EngineHarness harness({.limits = {.running_max = 3, .cache_bytes = kPlenty}, .model_stops = false});
  const auto of = [](std::string tenant, std::string exchange, int32_t tokens) {
    api::Request request = Greedy("Tell me a story.", tokens);
    request.client = {
        .party = fair::PartyNamed(tenant), .has_key = !tenant.empty(), .exchange = std::move(exchange)};
    return request;
  };
  const std::string story = harness.Generate(of("", "alone", 60)).text();
  // Answers that do not end while this test runs.
  std::vector<api::RequestId> endless;
  for (int i = 0; i < 8; ++i) endless.push_back(harness.Submit(of("greedy", "", 1'000'000)));
  EXPECT_EQ(harness.Generate(of("other", "", 60)).text(), story);
  EXPECT_EQ(harness.Generate(of("", "exchange", 60)).text(), story);
  for (const auto id : endless) harness.Post(api::ipc::Cancel{id});
  // One that gave up its place comes back as it was.
  std::vector<api::RequestId> choices;
  for (int i = 0; i < 6; ++i) choices.push_back(harness.Submit(of("", "choices", 60)));
  EXPECT_EQ(harness.Generate(of("", "single", 60)).text(), story);
  for (const auto id : choices) EXPECT_EQ(harness.Wait(id).text(), story);
}

// An address is one party with all its exchanges and whatever credentials it invents; while nobody else asks
// it has all places.
TEST(Engine, AnAddressDoesNotKeepAnotherOut) {
  EngineHarness harness({.limits = {.running_max = 4, .cache_bytes = kPlenty}, .model_stops = false});
  const auto from = [](std::string address, int exchange, int32_t tokens) {
    api::Request request = Greedy("Tell me a story.", tokens);
    request.client.exchange = std::to_string(exchange);
    request.client.tenant = "invented " + request.client.exchange;
    request.client.party = fair::PartyNamed(address);
    return request;
  };
  std::vector<api::RequestId> endless;
  for (int i = 0; i < 8; ++i) endless.push_back(harness.Submit(from("10.0.0.1", i, 1'000'000)));
  for (const auto id : endless) harness.Post(api::ipc::Credit{id, 1'000'000});  // nobody's reader stalls
  for (int i = 0; i < 4; ++i)
    harness.WaitUntil(endless[static_cast<size_t>(i)],
                      [](const Outcome& outcome) { return !outcome.deltas.empty(); });
  EXPECT_FALSE(harness.Generate(from("10.0.0.2", 100, 60)).text().empty());
  // Nor do several choices of one exchange keep out another of their address.
  for (const auto id : endless) harness.Post(api::ipc::Cancel{id});
  endless.clear();
  for (int i = 0; i < 8; ++i) endless.push_back(harness.Submit(from("10.0.0.1", 1, 1'000'000)));
  for (const auto id : endless) harness.Post(api::ipc::Credit{id, 1'000'000});
  EXPECT_FALSE(harness.Generate(from("10.0.0.1", 2, 60)).text().empty());
  for (const auto id : endless) harness.Post(api::ipc::Cancel{id});
}

// Where sampling takes long, parties take turns at it: each token of one here takes 50 ms of a clock that
// only counts.
TEST(Engine, PartiesTakeTurnsWhereSamplingIsCostly) {
  const auto of = [](std::string tenant, int32_t tokens) {
    api::Request request = Logged(Greedy("Tell me a story about a fox and a river.", tokens));
    request.client.party = fair::PartyNamed(tenant);
    return request;
  };
  const auto alone = EngineHarness({.model_stops = false}).Generate(of("", 60)).logprobs();
  EngineLimits limits{.cache_bytes = kPlenty};
  limits.sampling_clock = [calls = 0]() mutable { return ++calls * std::chrono::milliseconds(50); };
  EngineHarness harness({.limits = limits, .model_stops = false});
  std::vector<api::RequestId> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(harness.Submit(of("many", 60)));
  ids.push_back(harness.Submit(of("one", 60)));
  for (const auto id : ids) harness.Post(api::ipc::Credit{id, 100});
  for (const auto id : ids) EXPECT_EQ(harness.Wait(id).logprobs(), alone);
  std::promise<int64_t> steps;
  harness.Post(
      EngineQuestion{{}, [&steps](const auto& seen) { steps.set_value(static_cast<int64_t>(seen.steps)); }});
  EXPECT_GE(steps.get_future().get(), 100) << "eight streams go on beside one in few of its steps";
}

// One place of 16 stays free of a tenant, so nobody is preempted for the next.
TEST(Engine, AFewPlacesStayFreeOfOneTenant) {
  EngineHarness harness({.limits = {.running_max = 16, .cache_bytes = kPlenty}, .model_stops = false});
  const auto of = [](std::string tenant, int32_t tokens) {
    api::Request request = Greedy("Tell me a story.", tokens);
    request.client = {.party = fair::PartyNamed(tenant), .has_key = !tenant.empty(), .exchange = {}};
    return request;
  };
  std::vector<api::RequestId> endless;
  for (int i = 0; i < 15; ++i) endless.push_back(harness.Submit(of("greedy", 1'000'000)));
  const api::RequestId waits = harness.Submit(of("greedy", 1'000'000));
  for (const auto id : endless) harness.Post(api::ipc::Credit{id, 1'000'000});  // nobody's reader stalls
  for (const auto id : endless)
    harness.WaitUntil(id, [](const Outcome& outcome) { return outcome.deltas.size() >= 5; });
  harness.Generate(of("other", 60));
  EXPECT_TRUE(harness.Now(waits).deltas.empty());
  harness.Post(api::ipc::Cancel{endless[3]});
  harness.WaitUntil(waits, [](const Outcome& outcome) { return !outcome.deltas.empty(); });
  for (const auto id : endless) harness.Post(api::ipc::Cancel{id});
  harness.Post(api::ipc::Cancel{waits});
}

api::Request OfTenant(std::string tenant, std::string text, int32_t tokens) {
  api::Request request = Greedy(std::move(text), tokens);
  request.client = {.party = fair::PartyNamed(tenant), .has_key = !tenant.empty(), .exchange = {}};
  return request;
}

std::string ManyWords() {
  std::string words;
  for (int i = 0; i < 40; ++i) words += "the cat sat on the mat. ";
  return words;
}

// Memory is short: requests of the greedy tenant are preempted and wait for it. The other tenant needs more
// than one of the running ones has.
TEST(Engine, RequestsPreemptedForMemoryDoNotKeepAnIdleTenantOut) {
  EngineHarness alone({.model_stops = false});
  EngineHarness harness(
      {.limits = {.running_max = 8, .cache_bytes = alone.SequenceBytesOf(900)}, .model_stops = false});
  const std::string words = ManyWords();
  const std::string expected = alone.Generate(OfTenant("", words, 20)).text();
  std::vector<api::RequestId> endless;
  for (int i = 0; i < 8; ++i)
    endless.push_back(harness.Submit(OfTenant("greedy", "Tell me a story.", 1'000'000)));
  harness.WaitUntil(endless[0], [](const Outcome& outcome) { return outcome.deltas.size() >= 60; });
  EXPECT_EQ(harness.Generate(OfTenant("other", words, 20)).text(), expected);
  for (const auto id : endless) harness.Post(api::ipc::Cancel{id});
}

// Their answers are many times as long as what they began with, and shift: they stop growing, and never end.
TEST(Engine, GrownAnswersDoNotKeepAnIdleTenantOut) {
  EngineHarness alone({.model_stops = false});
  EngineHarness harness(
      {.limits = {.running_max = 8, .cache_bytes = alone.SequenceBytesOf(900)}, .model_stops = false});
  const std::string words = ManyWords();
  const std::string expected = alone.Generate(OfTenant("", words, 20)).text();
  std::vector<api::RequestId> endless;
  for (int i = 0; i < 4; ++i) {
    api::Request request = OfTenant("greedy", "Tell me a story.", 1'000'000);
    request.params.num_ctx = 280;
    endless.push_back(harness.Submit(std::move(request)));
    harness.Post(api::ipc::Credit{endless.back(), 1'000'000});
  }
  harness.WaitUntil(endless[0], [](const Outcome& outcome) { return outcome.deltas.size() >= 400; });
  EXPECT_EQ(harness.Generate(OfTenant("other", words, 20)).text(), expected);
  for (const auto id : endless) harness.Post(api::ipc::Cancel{id});
}

TEST(Engine, StalledReadersGiveUpTheirPlaces) {
  EngineHarness harness({.limits = {.running_max = 2, .cache_bytes = kPlenty}, .model_stops = false});
  const auto endless = Logged(Greedy("Tell me a story.", 5000));
  const std::vector<api::RequestId> stalled{harness.Submit(endless), harness.Submit(endless)};
  const std::string hello = harness.Generate(Greedy("Hello!", 20)).text();
  EXPECT_FALSE(hello.empty());
  // They go on where they stopped.
  const size_t stopped_at = harness.Now(stalled[0]).deltas.size();
  harness.Post(api::ipc::Credit{stalled[0], 10});
  const auto more = harness.WaitUntil(
      stalled[0], [&](const Outcome& outcome) { return outcome.deltas.size() >= stopped_at + 10; });
  EXPECT_EQ(more.deltas.size(), stopped_at + 10);
  for (const auto id : stalled) harness.Post(api::ipc::Cancel{id});
}

TEST(Engine, AReaderThatTakesNothingStopsItsOwnSequenceOnly) {
  EngineHarness harness({.model_stops = false});
  const auto endless = Logged(Greedy("Tell me a story.", 5000));  // with logprobs every token is one delta
  const auto stalled = harness.Submit(endless);
  const size_t credit = api::ipc::kInitialCredit;
  const auto full = harness.WaitUntil(stalled, [&](const Outcome& outcome) {
    return outcome.ended() || outcome.deltas.size() >= credit - 8;
  });
  ASSERT_FALSE(full.ended());
  EXPECT_TRUE(harness.Generate(Greedy("Hello!")).text().starts_with("Hello! How can I help you?"));
  const size_t stopped_at = harness.Now(stalled).deltas.size();
  EXPECT_LE(stopped_at, credit);
  EXPECT_TRUE(harness.Generate(Greedy("Hello!")).text().starts_with("Hello! How can I help you?"));
  EXPECT_EQ(harness.Now(stalled).deltas.size(), stopped_at);
  harness.Post(api::ipc::Credit{stalled, 10});
  harness.WaitUntil(stalled, [&](const Outcome& outcome) {
    return outcome.ended() || outcome.deltas.size() == stopped_at + 10;
  });
  harness.Post(api::ipc::Cancel{stalled});
  EXPECT_TRUE(harness.Generate(Greedy("Hello!")).text().starts_with("Hello! How can I help you?"));
}

TEST(Engine, StopStringsEndTheAnswerAcrossTokens) {
  EngineHarness harness;
  auto request = Greedy("Hello!");
  request.params.stop = {"zzz", "can I he"};
  const auto outcome = harness.Generate(request);
  EXPECT_EQ(outcome.text(), "Hello! How ");
  EXPECT_EQ(outcome.finished->reason, api::FinishReason::kStop);
  EXPECT_EQ(outcome.finished->stop_string, "can I he");
}

TEST(Engine, TextHeldForAStopStringComesOutAtTheLimit) {
  EngineHarness harness;
  auto request = Greedy("Hello!", 4);
  const std::string whole = harness.Generate(request).text();
  request.params.stop = {whole.substr(whole.size() - 3) + "never"};
  EXPECT_EQ(harness.Generate(request).text(), whole);
}

TEST(Engine, NumPredictIsExactAndZeroGivesNothing) {
  EngineHarness harness;
  const auto five = harness.Generate(Greedy("Tell me a story.", 5));
  EXPECT_EQ(five.finished->usage.output_tokens, 5);
  EXPECT_EQ(five.finished->reason, api::FinishReason::kLength);
  const auto none = harness.Generate(Greedy("Tell me a story.", 0));
  EXPECT_EQ(none.finished->usage.output_tokens, 0);
  EXPECT_EQ(none.text(), "");
}

TEST(Engine, TheContextEndsTheAnswerOrIsShifted) {
  EngineHarness harness;
  auto request = Greedy("Tell me a story.", 300);
  request.params.num_ctx = 64;
  request.params.temperature = 1.5F;
  request.params.seed = 5;
  request.shift = false;
  const auto cut = harness.Generate(request);
  EXPECT_EQ(cut.finished->reason, api::FinishReason::kLength);
  EXPECT_EQ(cut.finished->usage.prompt_tokens + cut.finished->usage.output_tokens, 64);
  request.shift = true;
  request.params.num_predict = 100;
  const auto shifted = harness.Generate(request);
  EXPECT_TRUE(shifted.finished->usage.output_tokens == 100 ||
              shifted.finished->reason == api::FinishReason::kStop);
  EXPECT_GT(shifted.finished->usage.output_tokens, cut.finished->usage.output_tokens);
}

TEST(Engine, AnAnswerWithoutABoundEndsAfterTenContexts) {
  EngineHarness harness({.model_stops = false});
  auto request = Greedy("Tell me a story.", -1);
  request.params.num_ctx = 64;
  request.shift = true;
  const auto id = harness.Submit(request);
  harness.Post(api::ipc::Credit{id, 5000});
  const auto answer = harness.Wait(id);
  EXPECT_EQ(answer.finished->usage.output_tokens, 640);
  EXPECT_EQ(answer.finished->reason, api::FinishReason::kLength);
}

TEST(Engine, APromptThatDoesNotFitIsCutOrRefused) {
  EngineHarness harness;
  std::string words;
  for (int i = 0; i < 200; ++i) words += "the cat sat on the mat. ";
  auto request = Greedy(words, 4);
  request.params.num_ctx = 128;
  request.overflow = api::Overflow::kRefuse;
  const auto refused = harness.Generate(request);
  ASSERT_TRUE(refused.failed);
  EXPECT_EQ(refused.failed->error.code, api::ErrorCode::kContextLengthExceeded);
  EXPECT_THAT(refused.failed->error.message, HasSubstr("(128 tokens)"));
  request.overflow = api::Overflow::kTruncate;
  request.prompt = api::RawPrompt{words};
  const auto cut = harness.Generate(request);
  EXPECT_EQ(cut.finished->usage.prompt_tokens, 127);
  EXPECT_GT(cut.finished->prompt_dropped, 500);
  // A single turn of /api/generate is cut by tokens too, where a chat whose last message is too long is
  // refused.
  request.prompt = api::ContinuedPrompt{{}, {{.role = "user", .content = words}}};
  EXPECT_EQ(harness.Generate(request).finished->usage.prompt_tokens, 127);
}

TEST(Engine, TheSystemTextIsNeverDropped) {
  EngineHarness harness({.model_stops = false});
  const std::string system = "You are a pirate who answers in rhymes and loves the sea.";
  std::string words;
  for (int i = 0; i < 100; ++i) words += "the cat sat on the mat. ";
  auto request = Greedy("", 1);
  request.return_context = true;
  request.prompt = api::ContinuedPrompt{{}, {{.role = "system", .content = system}}};
  const auto alone = harness.Generate(request).finished->context;
  // The common prefix of all prompts with this system text.
  const std::vector<api::TokenId> begin(alone.begin(), alone.end() - 5);
  ASSERT_THAT(begin, SizeIs(testing::Gt(15)));
  const auto begins = [&](const Outcome& outcome) {
    const auto& context = outcome.finished->context;
    return context.size() >= begin.size() && std::equal(begin.begin(), begin.end(), context.begin());
  };
  request.params.num_ctx = 128;
  request.prompt =
      api::ContinuedPrompt{{}, {{.role = "system", .content = system}, {.role = "user", .content = words}}};
  const auto cut = harness.Generate(request);
  EXPECT_GT(cut.finished->prompt_dropped, 100);
  EXPECT_TRUE(begins(cut));
  // A shift keeps it too.
  request.params.num_predict = 200;
  EXPECT_TRUE(begins(harness.Generate(request)));
  // Where nothing else has room, the request is refused.
  request.params.num_ctx = 16;
  const auto refused = harness.Generate(request);
  ASSERT_TRUE(refused.failed);
  EXPECT_EQ(refused.failed->error.code, api::ErrorCode::kContextLengthExceeded);
}

TEST(Engine, ASeedRepeatsAndSeedsDiffer) {
  EngineHarness harness;
  auto request = Greedy("Tell me a story.", 40);
  request.params.temperature = 1;
  std::set<std::string> texts;
  for (int64_t seed = 0; seed < 6; ++seed) {
    request.params.seed = seed;
    const auto text = harness.Generate(request).text();
    EXPECT_EQ(harness.Generate(request).text(), text);
    texts.insert(text);
  }
  EXPECT_GT(texts.size(), 1U);
}

TEST(Engine, TheContextOfAnAnswerCanBeContinued) {
  EngineHarness harness;
  auto request = Greedy("Hello!");
  request.return_context = true;
  const auto first = harness.Generate(request);
  ASSERT_THAT(first.finished->context, SizeIs(testing::Ge(19)));
  api::Request next = Greedy("");
  next.prompt = api::ContinuedPrompt{first.finished->context, {{.role = "user", .content = "Who are you?"}}};
  const auto second = harness.Generate(next);
  EXPECT_GT(second.finished->usage.prompt_tokens, static_cast<int32_t>(first.finished->context.size()));
  EXPECT_THAT(second.text(), HasSubstr("quire-demo"));

  next.prompt = api::ContinuedPrompt{{1, 999999}, {{.role = "user", .content = "Hi"}}};
  EXPECT_EQ(harness.Generate(next).failed->error.field, "context");
}

}  // namespace
}  // namespace quire::runner::engine
