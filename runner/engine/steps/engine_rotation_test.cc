// Members of a party that take turns at its places (place_share.h): who is served, and that no answer
// shows it.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "runner/engine/testing/engine_harness.h"
#include "runner/engine/testing/engine_subjects.h"

namespace quire::runner::engine {
namespace {

api::Request From(api::Request request, std::string address, int exchange) {
  request.client.exchange = std::to_string(exchange);
  request.client.party = fair::PartyNamed(address);
  return request;
}

// Places change hands in every step in which somebody waits.
EngineLimits Restless(int32_t running_max, bool prefix_cache = true,
                      cache::ElementType state = cache::ElementType::kF32) {
  return {.running_max = running_max,
          .cache_bytes = kPlenty,
          .prefix_cache = prefix_cache,
          .state_cache_type = state,
          .check_invariants_every = 1,
          .time_slice = std::chrono::nanoseconds(0)};
}

class EveryModelRotates : public testing::TestWithParam<Subject> {
 protected:
  static EngineHarnessSetup Setup(EngineLimits limits) {
    return {.model = GetParam().model,
            .limits = std::move(limits),
            .model_stops = false,
            .kv_cache_type = GetParam().kv_cache_type};
  }
};

TEST_P(EveryModelRotates, WithTheSameBits) {
  const auto loaded = Load(GetParam().model, [](float, std::string_view) {});
  ASSERT_TRUE(loaded) << loaded.error().message;
  const auto ask = [](int i) {
    const std::string question = "Tell me a story about a fox and " + std::to_string(i) + " rivers.";
    return From(Logged(Greedy(question, 10)), "10.0.0.1", i);
  };
  std::vector<std::vector<float>> alone;
  for (int i = 0; i < 5; ++i)
    alone.push_back(EngineHarness(Setup({.cache_bytes = kPlenty})).Generate(ask(i)).logprobs());
  using Config = std::pair<bool, cache::ElementType>;
  for (const auto& [prefix_cache, state] :
       {Config{true, cache::ElementType::kF32}, Config{false, cache::ElementType::kF32},
        Config{true, cache::ElementType::kQ8_0}}) {
    EngineHarness harness(Setup(Restless(2, prefix_cache, state)));
    // States that others have computed are rounded, its own are not.
    const bool shares = state == cache::ElementType::kF32;
    std::vector<api::RequestId> ids;
    for (int i = 0; i < 5; ++i) {
      api::Request request = ask(i);
      if (!shares) request.client.cache_salt = std::to_string(i);
      ids.push_back(harness.Submit(std::move(request)));
    }
    for (size_t i = 0; i < ids.size(); ++i)
      EXPECT_EQ(harness.Wait(ids[i]).logprobs(), alone[i])
          << "prefix cache " << prefix_cache << ", shared " << shares;
    EXPECT_GT(harness.Stopped().stats().preemptions, 10U);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryModelRotates, testing::ValuesIn(Subjects()), NameOf);

// Keys that were shifted cannot be computed again: such a request keeps its memory while it waits.
TEST(EngineRotation, ShiftedContextsHaveTheSameBits) {
  const auto ask = [](int i) {
    api::Request request = From(Logged(Greedy("Tell me a story.", 200)), "10.0.0.1", i);
    request.params.num_ctx = 48 + i;
    request.shift = true;
    return request;
  };
  std::vector<std::vector<float>> alone;
  for (int i = 0; i < 5; ++i) {
    EngineHarness harness({.model_stops = false});
    const auto id = harness.Submit(ask(i));
    harness.Post(api::ipc::Credit{id, 1000});
    alone.push_back(harness.Wait(id).logprobs());
    ASSERT_EQ(alone.back().size(), 200U);
  }
  EngineHarness harness({.limits = Restless(2), .model_stops = false});
  std::vector<api::RequestId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(harness.Submit(ask(i)));
  for (const auto id : ids) harness.Post(api::ipc::Credit{id, 1000});
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(harness.Wait(ids[i]).logprobs(), alone[i]);
  EXPECT_GT(harness.Stopped().stats().preemptions, 100U);
}

// Each stream of the address has a place of its own, and none ends.
TEST(EngineRotation, AnAddressDoesNotKeepItselfOut) {
  for (const int32_t context : {0, 64}) {
    EngineHarness harness({.limits = {.running_max = 4, .cache_bytes = kPlenty}, .model_stops = false});
    const auto ask = [context](int exchange, int32_t tokens) {
      api::Request request = From(Greedy("Tell me a story.", tokens), "10.0.0.1", exchange);
      request.params.num_ctx = context;
      request.shift = context > 0;
      return request;
    };
    std::vector<api::RequestId> endless;
    for (int i = 0; i < 40; ++i) endless.push_back(harness.Submit(ask(i, 1'000'000)));
    for (const auto id : endless) harness.Post(api::ipc::Credit{id, 1'000'000});  // nobody's reader stalls
    harness.WaitUntil(endless[0], [](const Outcome& outcome) { return outcome.deltas.size() >= 60; });
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(harness.Generate(ask(100 + i, 8)).text().empty());
    for (const auto id : endless) harness.Post(api::ipc::Cancel{id});
  }
}

TEST(EngineRotation, AKeyBesideAsManyAsThereArePlaces) {
  EngineHarness harness({.limits = {.running_max = 3, .cache_bytes = kPlenty}, .model_stops = false});
  const auto ask = [](int key, int32_t tokens) {
    api::Request request = Greedy("Tell me a story.", tokens);
    request.client.party = fair::PartyNamed("key " + std::to_string(key));
    return request;
  };
  std::vector<api::RequestId> endless;
  for (int i = 0; i < 3; ++i) endless.push_back(harness.Submit(ask(i, 1'000'000)));
  for (const auto id : endless) harness.Post(api::ipc::Credit{id, 1'000'000});
  for (const auto id : endless)
    harness.WaitUntil(id, [](const Outcome& outcome) { return !outcome.deltas.empty(); });
  EXPECT_FALSE(harness.Generate(ask(100, 8)).text().empty());
  for (const auto id : endless) harness.Post(api::ipc::Cancel{id});
}

// The caches hold little more than the streams of the address have: who comes takes memory, too.
TEST(EngineRotation, MemoryIsHandedOverWithThePlace) {
  EngineHarness alone({.model_stops = false});
  EngineHarness harness(
      {.limits = {.running_max = 16, .cache_bytes = alone.SequenceBytesOf(900)}, .model_stops = false});
  std::string words;
  for (int i = 0; i < 20; ++i) words += "the cat sat on the mat. ";
  const std::string expected = alone.Generate(From(Greedy(words, 20), "10.0.0.1", 100)).text();
  std::vector<api::RequestId> endless;
  for (int i = 0; i < 16; ++i)
    endless.push_back(harness.Submit(From(Greedy("Tell me a story.", 1'000'000), "10.0.0.1", i)));
  for (const auto id : endless) harness.Post(api::ipc::Credit{id, 1'000'000});
  harness.WaitUntil(endless[0], [](const Outcome& outcome) { return outcome.deltas.size() >= 60; });
  EXPECT_EQ(harness.Generate(From(Greedy(words, 20), "10.0.0.1", 100)).text(), expected);
  for (const auto id : endless) harness.Post(api::ipc::Cancel{id});
}

}  // namespace
}  // namespace quire::runner::engine
