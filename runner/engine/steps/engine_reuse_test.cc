// Prefix reuse, waiting for a prefix, snapshots left behind, and behavior when memory runs out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <set>

#include "runner/engine/testing/engine_harness.h"
#include "tests/data/test_data.h"

namespace quire::runner::engine {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// "<|im_start|>assistant\n": what the same request computes again on a hybrid model.
constexpr int32_t kHeaderTokens = 3;

EngineLimits Checked(size_t cache_bytes = kPlenty) {
  return {.cache_bytes = cache_bytes, .check_invariants_every = 1};
}

std::string Words(int count, int seed = 0) {
  static constexpr const char* kWords[] = {"fox", "river", "stone", "boat", "sea", "moon", "bread", "tree"};
  std::string text;
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761U + 1;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    text += std::string(i > 0 ? " " : "") + kWords[state >> 29];
  }
  return text;
}

api::Request Chat(std::vector<api::Message> messages, int32_t num_predict = 24) {
  api::Request request = Logged(Greedy("", num_predict));
  request.prompt = api::ChatPrompt{std::move(messages)};
  return request;
}

int32_t Computed(const Outcome& outcome) {
  return outcome.finished->usage.prompt_tokens - outcome.finished->usage.cached_tokens;
}

TEST(EngineReuse, TheSameRequestComputesTheAssistantsHeaderAgain) {
  EngineHarness harness({.limits = Checked()});
  const auto request = Logged(Greedy("Tell me a story about a fox and a river."));
  const auto first = harness.Generate(request);
  EXPECT_EQ(first.ready->cached_tokens, 0);
  EXPECT_EQ(first.ready->miss, "cold");
  const auto again = harness.Generate(request);
  EXPECT_EQ(Computed(again), kHeaderTokens);
  EXPECT_EQ(again.ready->cached_tokens, again.finished->usage.cached_tokens);
  EXPECT_EQ(again.logprobs(), first.logprobs());
}

TEST(EngineReuse, ANextTurnComputesWhatIsNewAndOneTokenMore) {
  EngineHarness harness({.limits = Checked()});
  std::vector<api::Message> messages = {{.role = "system", .content = "You are kind."},
                                        {.role = "user", .content = "Tell me a story about a fox."}};
  for (int turn = 0; turn < 4; ++turn) {
    const auto before = harness.Generate(Chat(messages));
    const int32_t seen = before.finished->usage.prompt_tokens + before.finished->usage.output_tokens;
    messages.push_back({.role = "assistant", .content = before.text()});
    messages.push_back({.role = "user", .content = "And then? " + Words(5, turn)});
    const auto after = harness.Generate(Chat(messages));
    // The last token of an answer cut by its length was never computed.
    EXPECT_GE(after.ready->cached_tokens, seen - 1);
    EXPECT_EQ(EngineHarness().Generate(Chat(messages)).logprobs(), after.logprobs());
  }
}

// Two turns, the second of which begins with the state that the first one left.
TEST(EngineReuse, StatesOfFewerBitsReuseAsMuchInLessMemory) {
  struct Turns {
    Outcome second;
    size_t states = 0;
    size_t bytes = 0;
  };
  for (const char* name : {"qwen3_5", "mamba2", "falcon_h1"}) {
    const auto model = test_data::Find(std::filesystem::path("models") / name);
    if (model.empty()) continue;  // of the second set
    const auto run = [&](cache::ElementType type) {
      EngineLimits limits = Checked();
      limits.state_cache_type = type;
      EngineHarness harness({.model = model.string(), .limits = limits, .model_stops = false});
      std::vector<api::Message> messages = {{.role = "user", .content = "Tell me a story about a fox."}};
      messages.push_back({.role = "assistant", .content = harness.Generate(Chat(messages, 12)).text()});
      messages.push_back({.role = "user", .content = "And then? " + Words(20)});
      Turns turns{.second = harness.Generate(Chat(messages, 12))};
      const Engine& engine = harness.Stopped();
      turns.bytes = engine.stats().store.slot_bytes;
      turns.states = turns.bytes / cache::StoredSlotBytes(engine.cache_layout());
      return turns;
    };
    const Turns whole = run(cache::ElementType::kF32);
    EXPECT_GT(whole.second.ready->cached_tokens, 0) << name;
    for (const auto type : {cache::ElementType::kBF16, cache::ElementType::kQ8_0}) {
      const Turns shorter = run(type);
      EXPECT_EQ(shorter.second.ready->cached_tokens, whole.second.ready->cached_tokens) << name;
      EXPECT_EQ(shorter.states, whole.states) << name;
      EXPECT_LT(shorter.bytes, whole.bytes * 3 / 4) << name;
      EXPECT_NEAR(shorter.second.logprobs()[0], whole.second.logprobs()[0], 0.02) << name;
    }
  }
}

TEST(EngineReuse, AnEditedMessageComputesFromTheMessageOn) {
  EngineHarness harness({.limits = Checked()});
  std::vector<api::Message> messages = {{.role = "system", .content = Words(60)},
                                        {.role = "user", .content = Words(40, 1)},
                                        {.role = "assistant", .content = Words(40, 2)},
                                        {.role = "user", .content = Words(40, 3)}};
  harness.Generate(Chat(messages));
  messages.back().content = Words(40, 4);
  const auto edited = harness.Generate(Chat(messages));
  const auto cold = EngineHarness().Generate(Chat(messages));
  EXPECT_EQ(edited.logprobs(), cold.logprobs());
  messages.pop_back();
  // All before the edited message is reused: its turns are shorter than what is cached.
  const auto prefix = EngineHarness().Generate(Chat(messages, 0));
  EXPECT_GE(edited.ready->cached_tokens, prefix.ready->prompt_tokens - kHeaderTokens - 4);
  EXPECT_THAT(edited.ready->miss, testing::AnyOf("layout", StartsWith("diverged@")));
}

TEST(EngineReuse, TheSecondBranchInsideAMessageIsFree) {
  EngineHarness harness({.limits = Checked()});
  const std::string shared = Words(120);
  harness.Generate(Greedy(shared + " one"));
  const auto second = harness.Generate(Greedy(shared + " two"));
  EXPECT_LT(second.ready->cached_tokens, 100);  // nobody knew that others come this way
  const auto third = harness.Generate(Greedy(shared + " three"));
  EXPECT_GE(third.ready->cached_tokens, 110);
}

// A conversation of short messages, too many for a snapshot at the end of each.
TEST(EngineReuse, AMarkedMessageIsARestorePointAmongCrowdedOnes) {
  std::vector<api::Message> messages = {{.role = "system", .content = "Be kind."}};
  for (int i = 1; i < 16; ++i) messages.push_back({i % 2 == 1 ? "user" : "assistant", Words(4, i)});
  constexpr size_t kMarked = 6;
  auto branch = messages;
  branch.resize(kMarked);
  const int32_t end =
      EngineHarness().Generate(Chat(branch, 0)).ready->prompt_tokens - kHeaderTokens;  // of what is shared
  branch.push_back({"assistant", Words(6, 40)});
  branch.push_back({"user", Words(6, 41)});
  EngineHarness plain({.limits = Checked()});
  plain.Generate(Chat(messages));
  EXPECT_LT(plain.Generate(Chat(branch)).ready->cached_tokens, end);
  messages[kMarked - 1].restore_point = true;
  EngineHarness marked({.limits = Checked()});
  marked.Generate(Chat(messages));
  const auto answer = marked.Generate(Chat(branch));
  EXPECT_EQ(answer.ready->cached_tokens, end);
  EXPECT_EQ(answer.logprobs(), EngineHarness().Generate(Chat(branch)).logprobs());
}

TEST(EngineReuse, AMarkIsASnapshotOfItsOwnWhereEveryTokenServes) {
  std::vector<api::Message> messages = {
      {.role = "user", .content = Words(20)}, {"assistant", Words(8, 1)}, {"user", Words(20, 2)}};
  for (const bool marked : {false, true}) {
    messages[0].restore_point = marked;
    EngineHarness harness({.model = "tests/data/models/qwen3", .limits = Checked()});
    harness.Generate(Chat(messages, 4));
    EXPECT_EQ(harness.Stopped().stats().store.nodes, marked ? 2U : 1U);
  }
}

TEST(EngineReuse, RequestsThatArriveTogetherComputeWhatTheyShareOnce) {
  const std::vector<api::Message> system = {{.role = "system", .content = Words(300)}};
  EngineHarness harness(
      {.limits = {.prefill_tokens = 32, .cache_bytes = kPlenty, .check_invariants_every = 1},
       .starts = false});
  std::vector<api::RequestId> ids;
  std::vector<api::Request> requests;
  for (int i = 0; i < 8; ++i) {
    auto messages = system;
    messages.push_back({.role = "user", .content = "Question " + std::to_string(i) + ": " + Words(10, i)});
    requests.push_back(Chat(std::move(messages), 8));
  }
  for (const auto& request : requests) ids.push_back(harness.Submit(request));
  harness.Start();
  int32_t whole = 0;
  int32_t computed = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto outcome = harness.Wait(ids[i]);
    whole = std::max(whole, outcome.ready->prompt_tokens);
    computed += Computed(outcome);
    EXPECT_EQ(outcome.logprobs(), EngineHarness().Generate(requests[i]).logprobs()) << i;
  }
  EXPECT_LT(computed, whole + 7 * 40);
  const auto stats = harness.Stopped().stats();
  EXPECT_EQ(stats.prompt_tokens_computed, static_cast<uint64_t>(computed));
}

TEST(EngineReuse, TheSamePromptAtOnceIsComputedOnceButForItsLastToken) {
  EngineHarness harness(
      {.limits = {.prefill_tokens = 16, .cache_bytes = kPlenty, .check_invariants_every = 1},
       .starts = false});
  const auto request = Logged(Greedy("Tell me a story. " + Words(200), 8));
  std::vector<api::RequestId> ids;
  for (int i = 0; i < 16; ++i) ids.push_back(harness.Submit(request));
  harness.Start();
  const auto first = harness.Wait(ids[0]);
  for (size_t i = 1; i < ids.size(); ++i) {
    const auto outcome = harness.Wait(ids[i]);
    EXPECT_EQ(Computed(outcome), 1) << i;
    EXPECT_EQ(outcome.logprobs(), first.logprobs());
  }
}

TEST(EngineReuse, AFollowerGoesOnWhenItsLeaderIsCancelled) {
  EngineHarness harness(
      {.limits = {.prefill_tokens = 2, .cache_bytes = kPlenty, .check_invariants_every = 1}});
  const auto request = Logged(Greedy(Words(250), 4));
  const auto leader = harness.Submit(request);
  const auto follower = harness.Submit(request);
  harness.WaitUntil(leader, [](const Outcome& outcome) { return outcome.ready.has_value(); });
  harness.Post(api::ipc::Cancel{leader});
  EXPECT_EQ(harness.Wait(follower).logprobs(), EngineHarness().Generate(request).logprobs());
}

TEST(EngineReuse, TenantsAndSaltsNeverShareAPrefix) {
  EngineHarness harness({.limits = Checked()});
  auto request = Logged(Greedy(Words(100)));
  const auto first = harness.Generate(request);
  request.client.tenant = "another key";
  const auto tenant = harness.Generate(request);
  EXPECT_EQ(tenant.ready->cached_tokens, 0);
  EXPECT_EQ(tenant.ready->miss, "salt");
  request.client = {.tenant = "", .cache_salt = "salted"};
  EXPECT_EQ(harness.Generate(request).ready->cached_tokens, 0);
  const auto again = harness.Generate(request);
  EXPECT_GT(again.ready->cached_tokens, 0);
  EXPECT_EQ(again.logprobs(), first.logprobs());
  // A tenant cannot be imitated by a salt.
  request.client = {.tenant = "", .cache_salt = "another key"};
  EXPECT_EQ(harness.Generate(request).ready->cached_tokens, 0);
}

TEST(EngineReuse, ACancelledPromptLeavesWhatItComputed) {
  EngineHarness harness({.limits = {.prefill_tokens = 8, .cache_bytes = kPlenty, .check_invariants_every = 1},
                         .model_stops = false});
  const auto request = Logged(Greedy(Words(400), 4));
  // Neither ends by itself, however late this thread looks.
  const auto clock = harness.Submit(Logged(Greedy("Tell me a story.", 100000)));
  harness.Post(api::ipc::Credit{clock, 100000});
  harness.WaitUntil(clock, [](const Outcome& outcome) { return outcome.deltas.size() > 2; });
  auto endless = request;
  endless.params.num_predict = 100000;
  const auto cancelled = harness.Submit(endless);
  harness.WaitUntil(cancelled, [](const Outcome& outcome) { return outcome.ready.has_value(); });
  const size_t now = harness.Now(clock).deltas.size();
  harness.WaitUntil(clock, [&](const Outcome& outcome) { return outcome.deltas.size() > now + 10; });
  harness.Post(api::ipc::Cancel{cancelled});
  const auto again = harness.Generate(request);
  EXPECT_FALSE(harness.Now(cancelled).ended());
  EXPECT_GE(again.ready->cached_tokens, 8 * 8);
  EXPECT_EQ(again.logprobs(), EngineHarness({.model_stops = false}).Generate(request).logprobs());
}

TEST(EngineReuse, SwitchedOffNothingIsReused) {
  EngineHarness harness(
      {.limits = {.cache_bytes = kPlenty, .prefix_cache = false, .check_invariants_every = 1}});
  const auto request = Logged(Greedy(Words(100)));
  const auto first = harness.Generate(request);
  const auto again = harness.Generate(request);
  EXPECT_EQ(again.ready->cached_tokens, 0);
  EXPECT_EQ(again.ready->miss, "off");
  EXPECT_EQ(again.logprobs(), first.logprobs());
  EXPECT_EQ(harness.Stopped().stats().store.nodes, 0U);
}

TEST(EngineMemory, TheYoungestIsPreemptedAndResumedWithTheSameBits) {
  const auto request = [](int i) { return Logged(Greedy("Tell me a story. " + Words(20, i), 150)); };
  EngineHarness alone({.model_stops = false});
  // Room for about two and a half of six requests.
  EngineHarness harness(
      {.limits = Checked(alone.SequenceBytesOf(500)), .model_stops = false, .starts = false});
  std::vector<api::RequestId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(harness.Submit(request(i)));
  harness.Start();
  for (int i = 0; i < 6; ++i) {
    const auto outcome = harness.Wait(ids[static_cast<size_t>(i)]);
    ASSERT_TRUE(outcome.finished) << outcome.failed->error.message;
    EXPECT_EQ(outcome.finished->usage.output_tokens, 150);
    EXPECT_EQ(outcome.logprobs(), alone.Generate(request(i)).logprobs()) << i;
  }
  EXPECT_GT(harness.Stopped().stats().preemptions, 0U);
}

TEST(EngineMemory, SnapshotsMakeRoomForWhoeverRuns) {
  EngineHarness alone;
  EngineHarness harness({.limits = Checked(alone.SequenceBytesOf(700))});
  for (int i = 0; i < 40; ++i) {
    const auto outcome = harness.Generate(Greedy(Words(150, i), 10));
    ASSERT_TRUE(outcome.finished) << outcome.failed->error.message;
  }
  const auto stats = harness.Stopped().stats();
  EXPECT_GT(stats.store.evictions, 0U);
  EXPECT_LE(stats.store.bytes_peak, stats.store.budget_bytes);
  EXPECT_EQ(stats.preemptions, 0U);
}

// A running request that shares a few tokens with a long answer does not keep all of it.
TEST(EngineMemory, ALongAnswerOfWhichAFewTokensAreSharedMakesRoom) {
  constexpr const char* kModel = "tests/data/models/qwen3";
  constexpr int kAnswer = 60;
  const auto request = [](int words, int i) {
    return Logged(Greedy(Words(12, 1) + Words(words, i), kAnswer));
  };
  const api::Request earlier = request(400, 2);
  const std::vector<api::Request> requests = {request(150, 3), request(150, 4)};
  EngineHarness alone({.model = kModel, .model_stops = false});
  int32_t tokens = alone.Generate(earlier).ready->prompt_tokens / 2;
  std::vector<std::vector<float>> expected;
  for (const api::Request& each : requests) {
    const auto outcome = alone.Generate(each);
    tokens += outcome.ready->prompt_tokens + kAnswer;
    expected.push_back(outcome.logprobs());
  }
  // Room for both, and for half of the earlier one.
  EngineHarness harness(
      {.model = kModel, .limits = Checked(alone.SequenceBytesOf(tokens)), .model_stops = false});
  ASSERT_TRUE(harness.Generate(earlier).finished);
  std::vector<api::RequestId> ids;
  for (const api::Request& each : requests) ids.push_back(harness.Submit(each));
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto outcome = harness.Wait(ids[i]);
    ASSERT_TRUE(outcome.finished) << outcome.failed->error.message;
    EXPECT_GT(outcome.ready->cached_tokens, 0);
    EXPECT_EQ(outcome.logprobs(), expected[i]);
  }
  const auto stats = harness.Stopped().stats();
  EXPECT_GT(stats.store.evictions, 0U);
  EXPECT_EQ(stats.preemptions, 0U);
}

// Prompts and long answers of one party fill the caches many times; another one's history is there as before.
TEST(EngineMemory, ManyPromptsOfOnePartyDoNotEvictAnothersHistory) {
  EngineHarness alone;
  EngineHarness harness({.limits = Checked(alone.SequenceBytesOf(2000))});
  auto turn = Chat({{.role = "user", .content = Words(400, 1)}});
  turn.client.party = fair::PartyNamed("one");
  const auto first = harness.Generate(turn);
  std::vector<api::RequestId> others;
  for (int i = 0; i < 24; ++i) {
    auto request = Greedy(Words(300, 100 + i), 40);
    request.client.party = fair::PartyNamed("many");
    others.push_back(harness.Submit(request));
  }
  for (const auto id : others) EXPECT_TRUE(harness.Wait(id).finished);
  EXPECT_GT(harness.engine_stats().prefix_evictions, 10U);
  const auto again = harness.Generate(turn);
  EXPECT_EQ(Computed(again), kHeaderTokens);
  EXPECT_EQ(again.logprobs(), first.logprobs());
}

// The large one waits until its party runs nothing, since another one's history is there, and small ones do
// not pass it.
TEST(EngineMemory, SmallRequestsDoNotPassALargeOneThatWaitsForMemory) {
  EngineHarness alone;
  EngineHarness harness({.limits = Checked(alone.SequenceBytesOf(2000)), .model_stops = false});
  auto history = Greedy(Words(400, 1), 4);
  history.client.party = fair::PartyNamed("one");
  harness.Generate(history);
  const auto ask = [&](std::string text, int32_t num_predict) {
    auto request = Greedy(std::move(text), num_predict);
    request.client.party = fair::PartyNamed("many");
    return harness.Submit(request);
  };
  const auto runs = ask("Tell me a story.", 1000);
  harness.Post(api::ipc::Credit{runs, 1000});
  harness.WaitUntil(runs, [](const Outcome& seen) { return !seen.deltas.empty(); });
  std::vector<api::RequestId> waiting = {ask(Words(1500, 2), 4)};
  for (int i = 0; i < 4; ++i) waiting.push_back(ask(Words(20, 10 + i), 4));
  for (const auto id : waiting) EXPECT_TRUE(harness.Wait(id).finished);
  EXPECT_EQ(harness.Ended().at(1), runs);  // behind the history
}

TEST(EngineMemory, AnIdleEngineGivesFreeMemoryBack) {
  const auto flood = [](EngineHarness& harness) {
    std::vector<api::RequestId> ids;
    for (int i = 0; i < 12; ++i) ids.push_back(harness.Submit(Logged(Greedy(Words(300, i), 8))));
    std::vector<std::vector<float>> logprobs;
    for (const api::RequestId id : ids) logprobs.push_back(harness.Wait(id).logprobs());
    return logprobs;
  };
  EngineLimits limits = Checked();
  limits.prefix_cache = false;
  limits.release_after = std::chrono::hours(24);  // however slow the machine is
  EngineHarness keeps({.limits = limits});
  limits.release_after = {};
  limits.release_bytes_min = 1;
  EngineHarness releases({.limits = limits});
  const auto expected = flood(keeps);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(flood(releases), expected);
    const auto deadline = Clock::now() + std::chrono::minutes(2);
    while (releases.engine_stats().cache_bytes_resident > 0 && Clock::now() < deadline)
      std::this_thread::yield();
    EXPECT_EQ(releases.engine_stats().cache_bytes_resident, 0);
  }
  // A pause, or little memory, is no reason.
  const auto kept = keeps.Stopped().stats().cache;
  EXPECT_EQ(kept.used_bytes, 0U);
  EXPECT_GT(kept.resident_bytes, 0U);  // of one request at least: how many run at once depends on the machine
  EXPECT_EQ(releases.Stopped().stats().cache.resident_bytes, 0U);
}

TEST(EngineMemory, ARequestThatCanNeverFitIsRefusedWithTheNumbers) {
  EngineHarness alone;
  EngineHarness harness({.limits = Checked(alone.SequenceBytesOf(600))});
  const auto refused = harness.Generate(Greedy(Words(1500), 4));
  ASSERT_TRUE(refused.failed);
  EXPECT_EQ(refused.failed->error.code, api::ErrorCode::kContextLengthExceeded);
  EXPECT_THAT(refused.failed->error.message, HasSubstr("needs"));
  EXPECT_THAT(refused.failed->error.message, HasSubstr("the largest request that fits has"));
  EXPECT_TRUE(harness.Generate(Greedy("Hello!")).finished);
}

TEST(EngineMemory, AnAnswerThatFillsTheCachesEndsWithLength) {
  EngineHarness alone({.model_stops = false});
  EngineHarness harness({.limits = Checked(alone.SequenceBytesOf(600)), .model_stops = false});
  auto request = Greedy("Tell me a story.", 5000);
  request.shift = false;
  const auto id = harness.Submit(request);
  harness.Post(api::ipc::Credit{id, 5000});
  const auto outcome = harness.Wait(id);
  ASSERT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.finished->reason, api::FinishReason::kLength);
  EXPECT_GT(outcome.finished->usage.output_tokens, 50);
}

TEST(EngineFairness, AKeyWithOneRequestIsNotHeldUpByAKeyWithMany) {
  EngineHarness harness(
      {.limits = {.running_max = 4, .prefill_tokens = 32, .cache_bytes = kPlenty}, .starts = false});
  std::vector<api::RequestId> all;
  for (int i = 0; i < 40; ++i) {
    auto request = Greedy(Words(100, i), 4);
    request.client.party = fair::PartyNamed("many");
    all.push_back(harness.Submit(request));
  }
  auto request = Greedy(Words(100, 99), 4);
  request.client.party = fair::PartyNamed("one");
  all.push_back(harness.Submit(request));
  harness.Start();
  for (const auto id : all) EXPECT_TRUE(harness.Wait(id).finished);
  const auto order = harness.Ended();
  EXPECT_LT(std::ranges::find(order, all.back()) - order.begin(), 20);
}

// With one running sequence and equal work, a key with three times the weight is admitted three times as
// often. All requests are there before the first is admitted, and none loses its place to time slices, which
// know no weights, however slow the machine is.
TEST(EngineFairness, AKeysWeightIsItsShareBesideOthers) {
  EngineHarness harness({.limits = {.running_max = 1,
                                    .prefill_tokens = 32,
                                    .cache_bytes = kPlenty,
                                    .time_slice = std::chrono::hours(1)},
                         .model_stops = false,
                         .starts = false});
  std::vector<api::RequestId> all;
  std::set<api::RequestId> heavy;
  for (int i = 0; i < 16; ++i) {
    for (const int32_t weight : {1, 3}) {
      auto request = Greedy(Words(100, 100 + i), 8);
      request.client.tenant = weight == 3 ? "heavy" : "light";  // who finds no prefixes of the other
      request.client.party = fair::PartyNamed(request.client.tenant, weight);
      all.push_back(harness.Submit(std::move(request)));
      if (weight == 3) heavy.insert(all.back());
    }
  }
  harness.Start();
  for (const auto id : all) EXPECT_TRUE(harness.Wait(id).finished);
  const auto order = harness.Ended();
  ASSERT_EQ(order.size(), all.size());
  const auto among =
      std::ranges::count_if(order.begin(), order.begin() + 16, [&](auto id) { return heavy.contains(id); });
  EXPECT_GE(among, 11) << "of 16, 12 by their weight";
  EXPECT_LE(among, 13);
}

}  // namespace
}  // namespace quire::runner::engine
