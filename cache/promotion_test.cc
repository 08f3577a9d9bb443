#include "cache/promotion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <string>

#include "cache/testing/memory_tier.h"
#include "cache/testing/test_rig.h"

namespace quire::cache {
namespace {

struct TierMix {
  const char* name;
  Layout layout;
};

const std::vector<TierMix>& TierMixes() {
  static const std::vector<TierMix> mixes = {
      {"causal", {.page_tokens = 4, .groups = {FullGroup()}}},
      {"window", {.page_tokens = 2, .groups = {WindowGroup(7)}}},
      {"windows", {.page_tokens = 2, .groups = {FullGroup(), WindowGroup(5), WindowGroup(9)}}},
      {"recurrent", {.page_tokens = 4, .recurrent = {ConvLayer(), DeltaLayer()}}},
      {"hybrid", {.page_tokens = 2, .groups = {FullGroup()}, .recurrent = {ConvLayer(), DeltaLayer()}}},
      {"all",
       {.page_tokens = 4,
        .groups = {WindowGroup(6), FullGroup(), WindowGroup(3)},
        .recurrent = {DeltaLayer()}}},
      {"index", {.page_tokens = 4, .groups = {FullGroup(), RowGroup()}}},
      {"blocks", {.page_tokens = 4, .groups = {WindowGroup(5), RowGroup(6), BlockGroup(3), BlockGroup(9)}}},
      {"stored",
       {.page_tokens = 2,
        .groups = {FullGroup()},
        .recurrent = {ConvLayer(), WideDeltaLayer()},
        .stored_state = ElementType::kBF16}},
  };
  return mixes;
}

class LowerTiers : public testing::TestWithParam<size_t> {
 protected:
  // Computes `tokens` behind what the store has; every row and state that a step sees is compared with the
  // tokens, restored ones included. Returns how many were restored.
  Position Run(const TokenList& tokens, std::vector<Position> captures = {}, std::string_view key = "") {
    const size_t i = rig.New();
    Restored hit = store.Restore(key, tokens, rig.sequence(i));
    rig.SetTokens(i, TokenList(tokens.begin(), tokens.begin() + hit.restored));
    captures.push_back(static_cast<Position>(tokens.size()));
    for (const Position at : captures) {
      if (at > hit.restored) (void)rig.cache().ScheduleCapture(rig.sequence(i), at);
    }
    rig.AppendTokens(i, TokenList(tokens.begin() + hit.restored, tokens.end()));
    for (Snapshot& snapshot : rig.cache().TakeCaptures(rig.sequence(i))) {
      const auto to = static_cast<size_t>(snapshot.to());
      if (store.Insert(key, tokens, std::move(snapshot))) demotion.Add(key, std::span(tokens).first(to), key);
    }
    rig.Drop(i);
    return hit.restored;
  }
  void StoreAll() {
    for (int polls = 0; demotion.Poll(); ++polls) ASSERT_LT(polls, 100'000);
  }
  // Whether the tier had something that the store took.
  bool Fetch(const TokenList& tokens, std::string_view key = "") {
    if (!promotion.Begin(key, tokens)) return false;
    const uint64_t before = promotion.counters().fetched;
    for (int polls = 0; promotion.state() != Promotion::State::kIdle && polls < 10'000; ++polls) {
      if (promotion.Poll(SIZE_MAX) == Promotion::State::kOffered) promotion.Accept();
    }
    Check();
    return promotion.counters().fetched > before;
  }
  void Check() {
    const auto checked = store.CheckInvariants();
    ASSERT_TRUE(checked.has_value()) << checked.error();
    rig.CheckAll();
  }

  const Layout layout = TierMixes()[GetParam()].layout;
  Rig rig{layout, {.pages = std::vector<int32_t>(layout.groups.size(), 256), .slots = 64}};
  SnapshotStore store{rig.cache(), {.budget_bytes = SIZE_MAX}};
  MemoryTier tier{layout};
  Promotion promotion{rig.cache(), store, tier};
  Demotion demotion{rig.cache(), store, tier};
};

INSTANTIATE_TEST_SUITE_P(Kinds, LowerTiers, testing::Range<size_t>(0, TierMixes().size()),
                         [](const auto& mix) { return TierMixes()[mix.param].name; });

TokenList TokensOf(size_t count, TokenId seed = 0) {
  TokenList tokens(count);
  std::minstd_rand random(static_cast<uint32_t>(seed) + 1);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 100);
  return tokens;
}

// All bytes of what the store has of these tokens.
std::vector<std::byte> BytesOf(const Layout& layout, const SnapshotStore& store, const TokenList& tokens) {
  std::vector<std::byte> bytes;
  const Snapshot* snapshot = store.Find("", tokens);
  for (const Segment& segment : SegmentsOf(layout, 0, static_cast<Position>(tokens.size()))) {
    const size_t begin = bytes.size();
    bytes.resize(begin + SegmentBytes(layout, segment));
    EXPECT_TRUE(snapshot != nullptr &&
                ReadSegment(layout, *snapshot, segment, 0, std::span(bytes).subspan(begin)));
  }
  return bytes;
}

TEST_P(LowerTiers, APrefixComesBackWithItsBytes) {
  const TokenList tokens = TokensOf(101);
  Run(tokens, {37, 70});
  const auto computed = BytesOf(layout, store, tokens);
  StoreAll();
  store.Clear();
  EXPECT_EQ(store.stats().bytes, 0u);
  TokenList next = tokens;
  next.push_back(3);
  ASSERT_TRUE(Fetch(next));
  EXPECT_EQ(BytesOf(layout, store, tokens), computed);
  EXPECT_EQ(Run(next), 101);
  EXPECT_FALSE(Fetch(next, "other"));
}

TEST_P(LowerTiers, WhatTheStoreHasIsNotFetchedAgain) {
  TokenList tokens = TokensOf(90);
  Run(tokens, {40});
  StoreAll();
  store.Clear();
  Run(TokenList(tokens.begin(), tokens.begin() + 40));
  tokens.push_back(1);
  ASSERT_TRUE(Fetch(tokens));
  size_t all = 0;
  for (const Segment& segment : SegmentsOf(layout, 0, 90)) all += SegmentBytes(layout, segment);
  const Segment first{0, SegmentTokens(layout), false};
  EXPECT_EQ(promotion.counters().bytes,
            all - SegmentBytes(layout, first) * static_cast<size_t>(40 / SegmentTokens(layout)));
  EXPECT_EQ(Run(tokens), 90);
}

TEST_P(LowerTiers, NothingIsStoredTwice) {
  const TokenList tokens = TokensOf(64);
  Run(tokens);
  StoreAll();
  const size_t once = tier.bytes_requested;
  Run(tokens);
  StoreAll();
  EXPECT_EQ(tier.bytes_requested, once);
}

TEST_P(LowerTiers, AnEvictedPrefixIsGivenUp) {
  Run(TokensOf(64));
  ASSERT_TRUE(demotion.Poll());
  store.Clear();
  StoreAll();
  EXPECT_EQ(demotion.counters().stored, 0u);
  EXPECT_EQ(demotion.counters().dropped, 1u);
  EXPECT_TRUE(tier.idle());
}

TEST_P(LowerTiers, AFullQueueGivesUpWhatHasMostOfIt) {
  const TokenList tokens = TokensOf(64);
  const TokenList flood = TokensOf(64, 1);
  Run(tokens, {}, "quiet");
  Run(flood, {}, "flood");
  for (size_t i = 0; i < 2 * Demotion::kQueueMax; ++i)
    demotion.Add("flood with salt " + std::to_string(i), flood, "flood");
  EXPECT_EQ(demotion.counters().dropped, Demotion::kQueueMax + 2);
  StoreAll();
  store.Clear();
  TokenList next = tokens;
  next.push_back(3);
  EXPECT_TRUE(Fetch(next, "quiet"));
}

// The first one of the queue is under way: it is not begun again for each that comes.
TEST_P(LowerTiers, WhatIsBeingStoredIsNotGivenUp) {
  const TokenList tokens = TokensOf(64);
  Run(tokens);
  ASSERT_TRUE(demotion.Poll());
  for (size_t i = 0; i < 2 * Demotion::kQueueMax; ++i) demotion.Add("", TokensOf(64, 1));
  StoreAll();
  EXPECT_EQ(demotion.counters().stored, 1u);
}

TEST_P(LowerTiers, WrongAnswersAreRefused) {
  TokenList tokens = TokensOf(64);
  Run(tokens);
  StoreAll();
  store.Clear();
  tokens.push_back(1);
  for (int fault = 1; fault < static_cast<int>(MemoryTier::Fault::kFaults); ++fault) {
    tier.fault = static_cast<MemoryTier::Fault>(fault);
    EXPECT_FALSE(Fetch(tokens)) << fault;
    EXPECT_EQ(promotion.counters().refused + promotion.counters().failed, static_cast<uint64_t>(fault));
    EXPECT_EQ(store.Probe("", tokens).restorable, 0);
    EXPECT_TRUE(tier.idle());
    EXPECT_EQ(rig.cache().stats().used_bytes, 0u);
  }
}

TEST_P(LowerTiers, WrongQuestionsAreRefused) {
  Run(TokensOf(64));
  for (const auto fault : {MemoryTier::Fault::kWrongSegment, MemoryTier::Fault::kTooManyBytes}) {
    tier.fault = fault;
    Run(TokensOf(64));
    StoreAll();
  }
  EXPECT_EQ(demotion.counters().bytes, 0u);
  EXPECT_EQ(tier.segments(), 0u);
}

TEST_P(LowerTiers, AFetchThatNeverAnswersHoldsNothingOnceCanceled) {
  TokenList tokens = TokensOf(64);
  Run(tokens);
  StoreAll();
  store.Clear();
  tokens.push_back(1);
  ASSERT_TRUE(promotion.Begin("", tokens));
  ASSERT_EQ(promotion.Poll(SIZE_MAX), Promotion::State::kOffered);
  ASSERT_EQ(promotion.Accept(), Promotion::State::kFetching);
  tier.never = true;
  for (int polls = 0; polls < 100; ++polls) EXPECT_EQ(promotion.Poll(1), Promotion::State::kFetching);
  EXPECT_FALSE(promotion.Begin("", tokens));
  EXPECT_GT(rig.cache().stats().used_bytes, 0u);
  promotion.Cancel();
  EXPECT_EQ(rig.cache().stats().used_bytes, 0u);
  EXPECT_TRUE(tier.idle());
}

TEST_P(LowerTiers, RowsOfOthersDoNotLeave) {
  const TokenList tokens = TokensOf(41);
  Run(tokens);
  const auto once = BytesOf(layout, store, tokens);
  store.Clear();
  // The pages had other rows in between, and this prefix ends inside one that goes on.
  Run(TokensOf(200, 7));
  store.Clear();
  TokenList longer = tokens;
  longer.resize(60, 5);
  Run(longer, {41});
  EXPECT_EQ(BytesOf(layout, store, tokens), once);
}

// Requests that share prefixes, evictions, and a tier that is late, silent or wrong at times: every token
// that a step sees is compared with the request's.
TEST_P(LowerTiers, RandomOperationsNeverShowAnotherToken) {
  std::mt19937 random(static_cast<uint32_t>(GetParam()) + 1);
  const auto below = [&](size_t bound) { return static_cast<uint32_t>(random() % bound); };
  for (int operation = 0; operation < 1'500; ++operation) {
    TokenList tokens = TokensOf(5 + below(60), static_cast<TokenId>(below(2)));
    for (uint32_t i = below(4); i > 0; --i) tokens.push_back(static_cast<TokenId>(below(3)));
    const std::string_view key = below(4) == 0 ? "b" : "a";
    switch (below(8)) {
      case 0:
        store.Clear();
        break;
      case 1:
        store.set_budget(below(3) == 0 ? 20'000 : SIZE_MAX);
        break;
      case 2:
        tier.late = static_cast<int>(below(4));
        tier.never = below(8) == 0;
        tier.piece = 1 + below(5'000);
        tier.fault =
            below(3) == 0
                ? static_cast<MemoryTier::Fault>(below(static_cast<size_t>(MemoryTier::Fault::kFaults)))
                : MemoryTier::Fault::kNone;
        break;
      case 3:
        if (below(3) == 0) promotion.Cancel();
        break;
      case 4:
      case 5:
        promotion.Begin(key, tokens);
        break;
      default:
        Run(tokens, {Position{1} + below(tokens.size())}, key);
    }
    for (uint32_t polls = below(30); polls > 0; --polls) {
      demotion.Poll();
      if (promotion.Poll(1 + below(10'000)) == Promotion::State::kOffered) promotion.Accept();
    }
    Check();
    if (HasFatalFailure()) FAIL() << "operation " << operation;
  }
  promotion.Cancel();
  EXPECT_GT(promotion.counters().fetched, 0u);
  EXPECT_GT(promotion.counters().refused, 0u);
  EXPECT_GT(demotion.counters().stored, 0u);
}

}  // namespace
}  // namespace quire::cache
