// No request ever sees another's tokens: many at once, each with a word of its own, with aborts, shared
// prefixes and memory that runs out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <random>

#include "runner/engine/testing/engine_harness.h"

namespace quire::runner::engine {
namespace {

// Six characters that no other request has, and that look alike for no two neighbors.
std::string Codeword(int i) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::string word;
  uint64_t mixed = (static_cast<uint64_t>(i) * 1'000'003 + 12'345) % 2'176'782'336;  // 36^6; coprime factor
  for (int part = 0; part < 6; ++part, mixed /= 36) word += kLetters[mixed % 36];
  return word;
}

// The bundled model was trained to repeat; few beginnings for many requests: they fork and share.
api::Request Repeat(int i) {
  static constexpr std::string_view kBeginnings[] = {
      "Repeat: ", "Repeat after me: ", "Say: ", "Please repeat: ", "Say exactly this: "};
  return Greedy(std::string(kBeginnings[i % 5]) + Codeword(i), 12);
}

TEST(EngineIsolation, NoForeignCodewordInAnyAnswer) {
  const char* asked = std::getenv("QUIRE_CODEWORD_REQUESTS");
  const int total = asked != nullptr ? std::atoi(asked) : 600;
  EngineHarness alone;
  EngineHarness harness({.limits = {.cache_bytes = alone.SequenceBytesOf(900)}});
  std::mt19937 random(11);
  std::deque<std::pair<int, api::RequestId>> open;
  int answers = 0;
  int own = 0;
  const auto take = [&] {
    const auto [i, id] = open.front();
    open.pop_front();
    const auto outcome = harness.Wait(id);
    ASSERT_TRUE(outcome.finished) << outcome.failed->error.message;
    const std::string text = outcome.text();
    for (int other = 0; other < total; ++other) {
      if (other == i) continue;
      ASSERT_EQ(text.find(Codeword(other)), std::string::npos) << i << " said " << text;
    }
    own += text.find(Codeword(i)) != std::string::npos ? 1 : 0;
    if (++answers % 25 == 0) {
      ASSERT_EQ(text, alone.Generate(Repeat(i)).text()) << i;
    }
  };
  for (int i = 0; i < total; ++i) {
    const auto id = harness.Submit(Repeat(i));
    if (random() % 5 == 0) {
      harness.Post(api::ipc::Cancel{id});  // queued, in prefill or not yet there
    } else {
      open.emplace_back(i, id);
    }
    while (open.size() > 48) take();
  }
  while (!open.empty()) take();
  const Engine& engine = harness.Stopped();
  const auto checked = engine.CheckInvariants();
  EXPECT_TRUE(checked) << checked.error();
  EXPECT_GT(engine.stats().store.evictions, 0U);
  RecordProperty("answers", answers);
  RecordProperty("own_word_said", own);
  EXPECT_GT(own, answers / 10);  // the test would see nothing of a model that never repeats
}

}  // namespace
}  // namespace quire::runner::engine
