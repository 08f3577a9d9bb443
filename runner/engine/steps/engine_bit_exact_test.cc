// Log-probabilities of a fixed request are bit-identical however it was computed, for every model
// (docs/numerics.md).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "runner/engine/testing/engine_harness.h"
#include "runner/engine/testing/engine_subjects.h"

namespace quire::runner::engine {
namespace {

class SameBits : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    const auto loaded = LoadSubject();
    ASSERT_TRUE(loaded) << loaded.error().message;
  }

  static api::Result<LoadedModel> LoadSubject() {
    return Load(GetParam().model, [](float, std::string_view) {},
                {.kv_cache_type = GetParam().kv_cache_type});
  }
  std::unique_ptr<EngineHarness> Make(EngineLimits limits = {}, int32_t threads = 2) const {
    if (limits.cache_bytes == 0) limits.cache_bytes = kPlenty;
    limits.check_invariants_every = 1;
    return std::make_unique<EngineHarness>(EngineHarnessSetup{.model = GetParam().model,
                                                              .limits = limits,
                                                              .threads = threads,
                                                              .model_stops = false,
                                                              .kv_cache_type = GetParam().kv_cache_type});
  }
  // The first `count` messages of a fixed conversation, the last of which is the user's.
  static api::Request Conversation(size_t count) {
    const std::vector<api::Message> all = {
        {.role = "user", .content = "What is the capital of France, and why is it so far from the sea?"},
        {.role = "assistant", .content = "Paris. Rivers were roads once."},
        {.role = "user", .content = "Tell me more about rivers and boats, in two or three sentences."},
        {.role = "assistant", .content = "Boats carried stone, wine and bread."},
        {.role = "user", .content = "And the moon?"}};
    api::Request request = Logged(Greedy("", 12));
    request.prompt = api::ChatPrompt{{all.begin(), all.begin() + static_cast<ptrdiff_t>(count)}};
    return request;
  }
  static constexpr size_t kAll = 5;

  std::vector<float> Cold() const { return Make()->Generate(Conversation(kAll)).logprobs(); }
};

TEST_P(SameBits, FullyCachedAndRestoredAtEveryMessage) {
  const auto cold = Cold();
  ASSERT_EQ(cold.size(), 12U);
  const auto again = Make();
  EXPECT_EQ(again->Generate(Conversation(kAll)).logprobs(), cold);
  const auto cached = again->Generate(Conversation(kAll));
  EXPECT_GT(cached.ready->cached_tokens, 0);
  EXPECT_EQ(cached.logprobs(), cold);
  for (size_t count = 1; count < kAll; count += 2) {
    const auto harness = Make();
    harness->Generate(Conversation(count));
    const auto restored = harness->Generate(Conversation(kAll));
    EXPECT_GT(restored.ready->cached_tokens, 0) << count;
    EXPECT_EQ(restored.logprobs(), cold) << count;
  }
}

TEST_P(SameBits, InChunksOfAnySizeAndOnAnyNumberOfThreads) {
  const auto cold = Cold();
  for (const int32_t chunk : {1, 7, 16, 64, 1 << 20}) {
    for (const int32_t threads : {1, 2}) {
      EXPECT_EQ(Make({.prefill_tokens = chunk}, threads)->Generate(Conversation(kAll)).logprobs(), cold)
          << "chunks of " << chunk << ", threads " << threads;
    }
  }
}

// More threads than cores, than heads and than a small matrix has panels.
TEST_P(SameBits, OnMoreThreadsThanThereIsWork) {
  const auto cold = Cold();
  for (const int32_t threads : {3, 7, 16, 64}) {
    EXPECT_EQ(Make({}, threads)->Generate(Conversation(kAll)).logprobs(), cold) << threads << " threads";
  }
}

// On two nodes, which this machine need not have, with weights on one or on each, and threads on one or on
// both.
TEST_P(SameBits, OnSeveralNodes) {
  const auto cold = Cold();
  const int64_t once = LoadSubject()->model->resident_bytes();
  for (const bool replicates : {false, true}) {
    NumaPlan plan;
    plan.nodes.assign(2, NumaNode{.cores = {{}}});
    plan.replicates_weights = replicates;
    SetNumaPlan(plan);
    const int64_t bytes = LoadSubject()->model->resident_bytes();
    EXPECT_TRUE(replicates ? bytes > once : bytes == once) << bytes << " and " << once;
    for (const int32_t threads : {1, 3, 40}) {
      EXPECT_EQ(Make({}, threads)->Generate(Conversation(kAll)).logprobs(), cold) << threads << " threads";
    }
  }
  SetNumaPlan({});
}

// No weights in panels, some of them, and so little room that experts replace each other.
TEST_P(SameBits, WithWeightsThatStayInTheFile) {
  const auto cold = Cold();
  const auto loaded = LoadSubject();
  ASSERT_TRUE(loaded);
  const int64_t all = loaded->model->resident_bytes();
  for (const int64_t panels : {int64_t{0}, all / 4, all * 3 / 4}) {
    EngineHarness harness({.model = GetParam().model,
                           .limits = {.prefill_tokens = 64, .cache_bytes = kPlenty},
                           .model_stops = false,
                           .kv_cache_type = GetParam().kv_cache_type,
                           .panel_bytes_max = panels});
    EXPECT_EQ(harness.Generate(Conversation(kAll)).logprobs(), cold) << panels << " of " << all;
  }
}

TEST_P(SameBits, BesideOthersThatComeAndGo) {
  const auto cold = Cold();
  std::mt19937 random(7);
  for (const size_t others : {1U, 3U, 15U}) {
    const auto harness = Make({.prefill_tokens = 24});
    std::vector<api::RequestId> ids;
    for (size_t i = 0; i < others; ++i) {
      std::string text;
      for (uint64_t word = random() % 60; word > 0; --word) text += " word" + std::to_string(random() % 100);
      ids.push_back(harness->Submit(Greedy("Count" + text, static_cast<int32_t>(1 + random() % 20))));
    }
    const auto beside = harness->Submit(Conversation(kAll));
    for (const auto id : ids) {
      if (random() % 3 == 0) harness->Post(api::ipc::Cancel{id});
    }
    EXPECT_EQ(harness->Wait(beside).logprobs(), cold) << others;
  }
}

TEST_P(SameBits, AfterPreemption) {
  const auto reference = Make();
  const auto request = [](int i) {
    api::Request made = Conversation(kAll);
    std::get<api::ChatPrompt>(made.prompt).messages.back().content += std::to_string(i);
    made.params.num_predict = 60;
    return made;
  };
  const auto prompt = reference->Generate(request(0)).ready->prompt_tokens;
  const auto harness = Make({.cache_bytes = reference->SequenceBytesOf(2 * (prompt + 60))});
  std::vector<api::RequestId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(harness->Submit(request(i)));
  for (int i = 0; i < 5; ++i) {
    const auto outcome = harness->Wait(ids[static_cast<size_t>(i)]);
    ASSERT_TRUE(outcome.finished) << outcome.failed->error.message;
    EXPECT_EQ(outcome.logprobs(), reference->Generate(request(i)).logprobs()) << i;
  }
}

TEST_P(SameBits, AShiftMovesKeysWhereTheCachesAllowItAndComputesAgainElsewhere) {
  const auto loaded = LoadSubject();
  const cache::Layout& layout = loaded->model->cache_layout();
  const bool full_only =
      layout.recurrent.empty() &&
      std::ranges::all_of(layout.groups, [](const auto& group) { return group.window == 0; });
  const auto harness = Make();
  auto request = Conversation(1);
  const auto prompt = harness->Generate(request).finished->usage.prompt_tokens;
  const auto before = harness->Generate(request).finished->usage.output_tokens;
  ASSERT_EQ(before, 12);
  request.params.num_ctx = prompt + 20;
  request.params.num_predict = 60;
  request.client.cache_salt = "alone";
  const auto outcome = harness->Generate(request);
  ASSERT_TRUE(outcome.finished) << outcome.failed->error.message;
  EXPECT_EQ(outcome.finished->usage.output_tokens, 60);
  // Two short requests came before; of this one every token is computed once if keys were moved.
  const uint64_t once = static_cast<uint64_t>(prompt + 11) + static_cast<uint64_t>(prompt + 59);
  const uint64_t again = static_cast<uint64_t>(prompt + 11);  // at most, of the repeated short one
  const uint64_t computed = harness->Stopped().stats().tokens_computed;
  if (full_only) {
    EXPECT_LE(computed, once + again);
  }
  // A window that has not slid can be cut too, so windows alone say nothing.
  if (!layout.recurrent.empty()) {
    EXPECT_GT(computed, once + 20);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SameBits, testing::ValuesIn(Subjects()), NameOf);

}  // namespace
}  // namespace quire::runner::engine
