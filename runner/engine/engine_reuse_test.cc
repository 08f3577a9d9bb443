// What a request reuses, whom it waits for, what it leaves behind, and what happens when memory runs out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "runner/engine/testing/engine_bench.h"

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
  Bench bench({.limits = Checked()});
  const auto request = Logged(Greedy("Tell me a story about a fox and a river."));
  const auto first = bench.Ask(request);
  EXPECT_EQ(first.ready->cached_tokens, 0);
  EXPECT_EQ(first.ready->miss, "cold");
  const auto again = bench.Ask(request);
  EXPECT_EQ(Computed(again), kHeaderTokens);
  EXPECT_EQ(again.ready->cached_tokens, again.finished->usage.cached_tokens);
  EXPECT_EQ(again.logprobs(), first.logprobs());
}

TEST(EngineReuse, ANextTurnComputesWhatIsNewAndOneTokenMore) {
  Bench bench({.limits = Checked()});
  std::vector<api::Message> messages = {{.role = "system", .content = "You are kind."},
                                        {.role = "user", .content = "Tell me a story about a fox."}};
  for (int turn = 0; turn < 4; ++turn) {
    const auto before = bench.Ask(Chat(messages));
    const int32_t seen = before.finished->usage.prompt_tokens + before.finished->usage.output_tokens;
    messages.push_back({.role = "assistant", .content = before.text()});
    messages.push_back({.role = "user", .content = "And then? " + Words(5, turn)});
    const auto after = bench.Ask(Chat(messages));
    // The last token of an answer cut by its length was never computed.
    EXPECT_GE(after.ready->cached_tokens, seen - 1);
    EXPECT_EQ(Bench().Ask(Chat(messages)).logprobs(), after.logprobs());
  }
}

TEST(EngineReuse, AnEditedMessageComputesFromTheMessageOn) {
  Bench bench({.limits = Checked()});
  std::vector<api::Message> messages = {{.role = "system", .content = Words(60)},
                                        {.role = "user", .content = Words(40, 1)},
                                        {.role = "assistant", .content = Words(40, 2)},
                                        {.role = "user", .content = Words(40, 3)}};
  bench.Ask(Chat(messages));
  messages.back().content = Words(40, 4);
  const auto edited = bench.Ask(Chat(messages));
  const auto cold = Bench().Ask(Chat(messages));
  EXPECT_EQ(edited.logprobs(), cold.logprobs());
  messages.pop_back();
  // All before the edited message is reused: its turns are shorter than what is cached.
  const auto prefix = Bench().Ask(Chat(messages, 0));
  EXPECT_GE(edited.ready->cached_tokens, prefix.ready->prompt_tokens - kHeaderTokens - 4);
  EXPECT_THAT(edited.ready->miss, testing::AnyOf("layout", StartsWith("diverged@")));
}

TEST(EngineReuse, TheSecondBranchInsideAMessageIsFree) {
  Bench bench({.limits = Checked()});
  const std::string shared = Words(120);
  bench.Ask(Greedy(shared + " one"));
  const auto second = bench.Ask(Greedy(shared + " two"));
  EXPECT_LT(second.ready->cached_tokens, 100);  // nobody knew that others come this way
  const auto third = bench.Ask(Greedy(shared + " three"));
  EXPECT_GE(third.ready->cached_tokens, 110);
}

TEST(EngineReuse, RequestsThatArriveTogetherComputeWhatTheyShareOnce) {
  const std::vector<api::Message> system = {{.role = "system", .content = Words(300)}};
  Bench bench({.limits = {.prefill_tokens = 32, .cache_bytes = kPlenty, .check_invariants_every = 1}});
  std::vector<api::RequestId> ids;
  std::vector<api::Request> requests;
  for (int i = 0; i < 8; ++i) {
    auto messages = system;
    messages.push_back({.role = "user", .content = "Question " + std::to_string(i) + ": " + Words(10, i)});
    requests.push_back(Chat(std::move(messages), 8));
  }
  for (const auto& request : requests) ids.push_back(bench.Submit(request));
  int32_t whole = 0;
  int32_t computed = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto outcome = bench.Wait(ids[i]);
    whole = std::max(whole, outcome.ready->prompt_tokens);
    computed += Computed(outcome);
    EXPECT_EQ(outcome.logprobs(), Bench().Ask(requests[i]).logprobs()) << i;
  }
  EXPECT_LT(computed, whole + 7 * 40);
  const auto stats = bench.Stopped().stats();
  EXPECT_EQ(stats.prompt_tokens_computed, static_cast<uint64_t>(computed));
}

TEST(EngineReuse, TheSamePromptAtOnceIsComputedOnceButForItsLastToken) {
  Bench bench({.limits = {.prefill_tokens = 16, .cache_bytes = kPlenty, .check_invariants_every = 1}});
  const auto request = Logged(Greedy("Tell me a story. " + Words(200), 8));
  std::vector<api::RequestId> ids;
  for (int i = 0; i < 16; ++i) ids.push_back(bench.Submit(request));
  const auto first = bench.Wait(ids[0]);
  for (size_t i = 1; i < ids.size(); ++i) {
    const auto outcome = bench.Wait(ids[i]);
    EXPECT_EQ(Computed(outcome), 1) << i;
    EXPECT_EQ(outcome.logprobs(), first.logprobs());
  }
}

TEST(EngineReuse, AFollowerGoesOnWhenItsLeaderIsCancelled) {
  Bench bench({.limits = {.prefill_tokens = 2, .cache_bytes = kPlenty, .check_invariants_every = 1}});
  const auto request = Logged(Greedy(Words(250), 4));
  const auto leader = bench.Submit(request);
  const auto follower = bench.Submit(request);
  bench.WaitUntil(leader, [](const Outcome& outcome) { return outcome.ready.has_value(); });
  bench.Post(api::ipc::Cancel{leader});
  EXPECT_EQ(bench.Wait(follower).logprobs(), Bench().Ask(request).logprobs());
}

TEST(EngineReuse, TenantsAndSaltsNeverShareAPrefix) {
  Bench bench({.limits = Checked()});
  auto request = Logged(Greedy(Words(100)));
  const auto first = bench.Ask(request);
  request.client.tenant = "another key";
  const auto tenant = bench.Ask(request);
  EXPECT_EQ(tenant.ready->cached_tokens, 0);
  EXPECT_EQ(tenant.ready->miss, "salt");
  request.client = {.tenant = "", .cache_salt = "salted"};
  EXPECT_EQ(bench.Ask(request).ready->cached_tokens, 0);
  const auto again = bench.Ask(request);
  EXPECT_GT(again.ready->cached_tokens, 0);
  EXPECT_EQ(again.logprobs(), first.logprobs());
  // A tenant cannot be imitated by a salt.
  request.client = {.tenant = "", .cache_salt = "another key"};
  EXPECT_EQ(bench.Ask(request).ready->cached_tokens, 0);
}

TEST(EngineReuse, ACancelledPromptLeavesWhatItComputed) {
  Bench bench({.limits = {.prefill_tokens = 8, .cache_bytes = kPlenty, .check_invariants_every = 1},
               .model_stops = false});
  const auto request = Logged(Greedy(Words(400), 4));
  const auto clock = bench.Submit(Logged(Greedy("Tell me a story.", 200)));
  bench.WaitUntil(clock, [](const Outcome& outcome) { return outcome.deltas.size() > 2; });
  const auto cancelled = bench.Submit(request);
  bench.WaitUntil(cancelled, [](const Outcome& outcome) { return outcome.ready.has_value(); });
  const size_t now = bench.Now(clock).deltas.size();
  bench.WaitUntil(clock, [&](const Outcome& outcome) { return outcome.deltas.size() > now + 10; });
  bench.Post(api::ipc::Cancel{cancelled});
  const auto again = bench.Ask(request);
  EXPECT_FALSE(bench.Now(cancelled).ended());
  EXPECT_GE(again.ready->cached_tokens, 8 * 8);
  EXPECT_EQ(again.logprobs(), Bench({.model_stops = false}).Ask(request).logprobs());
}

TEST(EngineReuse, SwitchedOffNothingIsReused) {
  Bench bench({.limits = {.cache_bytes = kPlenty, .reuse_prefixes = false, .check_invariants_every = 1}});
  const auto request = Logged(Greedy(Words(100)));
  const auto first = bench.Ask(request);
  const auto again = bench.Ask(request);
  EXPECT_EQ(again.ready->cached_tokens, 0);
  EXPECT_EQ(again.ready->miss, "off");
  EXPECT_EQ(again.logprobs(), first.logprobs());
  EXPECT_EQ(bench.Stopped().stats().store.nodes, 0U);
}

TEST(EngineMemory, TheYoungestIsPreemptedAndResumedWithTheSameBits) {
  const auto request = [](int i) { return Logged(Greedy("Tell me a story. " + Words(20, i), 150)); };
  Bench alone({.model_stops = false});
  // Room for about two and a half of six requests.
  Bench bench({.limits = Checked(alone.SequenceBytesOf(500)), .model_stops = false});
  std::vector<api::RequestId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(bench.Submit(request(i)));
  for (int i = 0; i < 6; ++i) {
    const auto outcome = bench.Wait(ids[static_cast<size_t>(i)]);
    ASSERT_TRUE(outcome.finished) << outcome.failed->error.message;
    EXPECT_EQ(outcome.finished->usage.output_tokens, 150);
    EXPECT_EQ(outcome.logprobs(), alone.Ask(request(i)).logprobs()) << i;
  }
  EXPECT_GT(bench.Stopped().stats().preemptions, 0U);
}

TEST(EngineMemory, SnapshotsMakeRoomForWhoeverRuns) {
  Bench alone;
  Bench bench({.limits = Checked(alone.SequenceBytesOf(700))});
  for (int i = 0; i < 40; ++i) {
    const auto outcome = bench.Ask(Greedy(Words(150, i), 10));
    ASSERT_TRUE(outcome.finished) << outcome.failed->error.message;
  }
  const auto stats = bench.Stopped().stats();
  EXPECT_GT(stats.store.evictions, 0U);
  EXPECT_LE(stats.store.bytes_peak, stats.store.budget_bytes);
  EXPECT_EQ(stats.preemptions, 0U);
}

TEST(EngineMemory, ARequestThatCanNeverFitIsRefusedWithTheNumbers) {
  Bench alone;
  Bench bench({.limits = Checked(alone.SequenceBytesOf(600))});
  const auto refused = bench.Ask(Greedy(Words(1500), 4));
  ASSERT_TRUE(refused.failed);
  EXPECT_EQ(refused.failed->error.code, api::ErrorCode::kContextLengthExceeded);
  EXPECT_THAT(refused.failed->error.message, HasSubstr("needs"));
  EXPECT_THAT(refused.failed->error.message, HasSubstr("the largest request that fits has"));
  EXPECT_TRUE(bench.Ask(Greedy("Hello!")).finished);
}

TEST(EngineMemory, AnAnswerThatFillsTheCachesEndsWithLength) {
  Bench alone({.model_stops = false});
  Bench bench({.limits = Checked(alone.SequenceBytesOf(600)), .model_stops = false});
  auto request = Greedy("Tell me a story.", 5000);
  request.shift = false;
  const auto id = bench.Submit(request);
  bench.Post(api::ipc::Credit{id, 5000});
  const auto outcome = bench.Wait(id);
  ASSERT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.finished->reason, api::FinishReason::kLength);
  EXPECT_GT(outcome.finished->usage.output_tokens, 50);
}

TEST(EngineFairness, AKeyWithOneRequestIsNotHeldUpByAKeyWithMany) {
  Bench bench({.limits = {.running_max = 4, .prefill_tokens = 32, .cache_bytes = kPlenty}});
  std::vector<api::RequestId> many;
  for (int i = 0; i < 40; ++i) {
    auto request = Greedy(Words(100, i), 4);
    request.client.tenant = "many";
    many.push_back(bench.Submit(request));
  }
  auto request = Greedy(Words(100, 99), 4);
  request.client.tenant = "one";
  bench.Wait(bench.Submit(request));
  int ended = 0;
  for (const auto id : many) ended += bench.Now(id).ended() ? 1 : 0;
  EXPECT_LT(ended, 20);
  for (const auto id : many) EXPECT_TRUE(bench.Wait(id).finished);
}

// With one place and the same work, whose key weighs three times as much is let in three times as often.
TEST(EngineFairness, AKeysWeightIsItsShareBesideOthers) {
  Bench bench(
      {.limits = {.running_max = 1, .prefill_tokens = 32, .cache_bytes = kPlenty}, .model_stops = false});
  auto first = Greedy(Words(50), 400);
  first.client.tenant = "first";
  const auto blocker = bench.Submit(first);
  bench.WaitUntil(blocker, [](const Outcome& seen) { return !seen.deltas.empty(); });
  std::vector<api::RequestId> all;
  std::set<api::RequestId> heavy;
  for (int i = 0; i < 16; ++i) {
    for (const int32_t weight : {1, 3}) {
      auto request = Greedy(Words(100, 100 + i), 8);
      request.client.tenant = weight == 3 ? "heavy" : "light";
      request.client.weight = weight;
      all.push_back(bench.Submit(std::move(request)));
      if (weight == 3) heavy.insert(all.back());
    }
  }
  bench.Post(api::ipc::Cancel{blocker});
  for (const auto id : all) EXPECT_TRUE(bench.Wait(id).finished);
  const auto order = bench.Ended();
  ASSERT_EQ(order.size(), all.size());
  const auto among =
      std::ranges::count_if(order.begin(), order.begin() + 16, [&](auto id) { return heavy.contains(id); });
  EXPECT_GE(among, 11) << "of 16, 12 by their weight";
  EXPECT_LE(among, 13);
}

}  // namespace
}  // namespace quire::runner::engine
