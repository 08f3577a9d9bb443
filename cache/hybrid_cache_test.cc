#include "cache/hybrid_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "cache/testing/fake_model.h"
#include "cache/testing/test_rig.h"

namespace quire::cache {
namespace {

TEST(CausalKv, AppendsARaggedBatchAndShowsItByPage) {
  Rig rig({.page_tokens = 4, .groups = {FullGroup()}}, {.pages = {32}});
  const size_t a = rig.New();
  const size_t b = rig.New();
  const size_t c = rig.New();
  rig.Append({{a, 1}, {b, 7}, {c, 4}});
  rig.Append({{c, 9}, {a, 1}});
  rig.Append({{b, 1}, {a, 2}, {c, 1}});
  EXPECT_EQ(rig.tokens(a).size(), 4u);
  EXPECT_EQ(rig.cache().stats().pages_used[0], 1 + 2 + 4);
}

TEST(CausalKv, AMapOfPerTokenPositionsIsWhatTheViewsShow) {
  Rig rig({.page_tokens = 4, .groups = {FullGroup()}}, {.pages = {32}});
  const size_t a = rig.New();
  rig.Append({{a, 10}});
  auto view = rig.cache().View(rig.sequence(a));
  ASSERT_TRUE(view.has_value());
  const auto pages = (*view)->Pages(0, 0);
  ASSERT_EQ(pages.size(), 3u);
  EXPECT_EQ(pages[2].first, 8);
  EXPECT_EQ(pages[2].tokens, 2);
  // A token stays at its place: page base and row. Forks map the same places, and what a write copied is the
  // page it writes to alone.
  std::vector<std::byte*> bases;
  for (const PageView& page : pages) bases.push_back(page.base);
  const size_t b = rig.Fork(a, 10);
  rig.Append({{a, 3}});
  const auto bases_of = [&](size_t i) {
    std::vector<std::byte*> now;
    for (const PageView& page : (*rig.cache().View(rig.sequence(i)))->Pages(0, 0)) now.push_back(page.base);
    return now;
  };
  EXPECT_EQ(bases_of(b), bases);
  const std::vector<std::byte*> written = bases_of(a);
  ASSERT_EQ(written.size(), 4u);
  EXPECT_TRUE(written[0] == bases[0] && written[1] == bases[1] && written[2] != bases[2]);
  rig.Append({{b, 1}});
  EXPECT_EQ(bases_of(b), bases);
}

TEST(CausalKv, RunningOutOfPagesNamesTheNumbersAndChangesNothing) {
  Rig rig({.page_tokens = 4, .groups = {FullGroup()}}, {.pages = {4}});
  const size_t a = rig.New();
  const size_t b = rig.New();
  rig.Append({{a, 9}});
  const CacheStats before = rig.cache().stats();
  const Error error = rig.AppendFails({{a, 4}, {b, 4}});
  EXPECT_EQ(error.code, ErrorCode::kOutOfPages);
  EXPECT_NE(error.message.find("capacity 4, used 3, demand 2"), std::string::npos) << error.message;
  EXPECT_EQ(rig.cache().stats().pages_used, before.pages_used);
  rig.CheckAll();
  rig.Append({{a, 7}});
}

// A batch that needs exactly what is left fits, also when siblings share the page they both write.
TEST(CausalKv, EveryPageOfCapacityIsUsable) {
  Rig rig({.page_tokens = 4, .groups = {FullGroup()}}, {.pages = {4}});
  const size_t a = rig.New();
  rig.Append({{a, 10}});
  const size_t b = rig.Fork(a, 10);
  EXPECT_EQ(rig.Need({{a, 1}, {b, 1}}).pages[0].need, 2);
  rig.Append({{a, 2}, {b, 1}});
  EXPECT_EQ(rig.cache().stats().pages_used[0], 4);
  rig.Drop(a);
  rig.Append({{b, 1}});
  EXPECT_EQ(rig.AppendFails({{b, 5}}).code, ErrorCode::kOutOfPages);
  rig.Append({{b, 4}});
}

// No history leaves a hole: whatever was appended, cut and freed before, all that is free can be filled by
// one sequence, to the last row.
TEST(CausalKv, EveryPageIsUsableAfterAnyHistoryOfAppendsAndFrees) {
  std::mt19937 random(3);
  const auto below = [&](size_t bound) { return random() % bound; };
  for (int history = 0; history < 20; ++history) {
    Rig rig({.page_tokens = 4, .groups = {FullGroup()}}, {.pages = {64}});
    std::vector<size_t> live;
    for (int op = 0; op < 60; ++op) {
      const int64_t free = 64 - rig.cache().stats().pages_used[0];
      const size_t pick = live.empty() ? 0 : below(live.size());
      switch (live.empty() ? 0 : below(5)) {
        case 0:
          live.push_back(rig.New());
          break;
        case 1:
        case 2:
          // At worst the page written to is copied and one more begun.
          if (free >= 8) rig.Append({{live[pick], static_cast<int32_t>(1 + below(24))}});
          break;
        case 3:
          if (below(2) == 0) {
            live.push_back(rig.Fork(live[pick], rig.sequence(live[pick]).offset() / 2));
          } else {
            rig.Truncate(live[pick], rig.sequence(live[pick]).offset() / 2);
          }
          break;
        default:
          rig.Drop(live[pick]);
          live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
      }
    }
    const auto free = static_cast<int32_t>(64 - rig.cache().stats().pages_used[0]);
    ASSERT_GT(free, 0);
    const size_t last = rig.New();
    EXPECT_EQ(rig.AppendFails({{last, free * 4 + 1}}).code, ErrorCode::kOutOfPages);
    rig.Append({{last, free * 4}});
    EXPECT_EQ(rig.cache().stats().pages_used[0], 64);
  }
}

TEST(CausalKv, AForkAtAnyLengthSharesEverythingAndCopiesAtMostAPage) {
  Rig rig({.page_tokens = 4, .groups = {FullGroup()}}, {.pages = {64}});
  const size_t a = rig.New();
  rig.Append({{a, 23}});
  for (Position at = 0; at <= 23; ++at) {
    const uint64_t copied = rig.cache().stats().bytes_copied;
    const int64_t used = rig.cache().stats().pages_used[0];
    const size_t b = rig.Fork(a, at);
    EXPECT_EQ(rig.cache().stats().pages_used[0], used);
    EXPECT_EQ(rig.cache().stats().bytes_copied, copied);
    rig.Append({{b, 3}});
    EXPECT_LE(rig.cache().stats().bytes_copied - copied, PageBytes(rig.cache().layout(), 0));
    rig.CheckAll();
    rig.Drop(b);
  }
}

TEST(CausalKv, EveryElementTypeIsKeptAndCopiedWhole) {
  for (const ElementType element :
       {ElementType::kF32, ElementType::kF16, ElementType::kBF16, ElementType::kQ8_0, ElementType::kI16}) {
    const AttentionGroup group{.layers = 2, .kv_heads = 2, .head_dim = 32, .element = element};
    AttentionGroup window = group;
    window.window = 5;
    Rig rig({.page_tokens = 4, .groups = {group, window}}, {.pages = {16, 16}});
    const size_t a = rig.New();
    rig.Append({{a, 6}});
    const size_t b = rig.Fork(a, 6);
    rig.Append({{a, 3}, {b, 1}});
    rig.Append({{b, 7}});
  }
}

TEST(CausalKv, TruncatesToAnyOffset) {
  Rig rig({.page_tokens = 4, .groups = {FullGroup()}}, {.pages = {64}});
  const size_t a = rig.New();
  rig.Append({{a, 30}});
  for (Position at = 29; at >= 0; at -= 3) {
    rig.Truncate(a, at);
    EXPECT_EQ(rig.cache().stats().pages_used[0], (at + 3) / 4);
    rig.Append({{a, 1}});
    rig.Truncate(a, at);
  }
}

TEST(RecurrentState, IsZeroAtFirstUseAndFoldsOnlyItsOwnTokens) {
  Rig rig({.recurrent = {ConvLayer(), DeltaLayer()}}, {.slots = 4});
  for (int round = 0; round < 3; ++round) {
    const size_t a = rig.New();
    const size_t b = rig.New();
    rig.Append({{a, 3}, {b, 5}});
    rig.Append({{b, 1}, {a, 1}});
    rig.Drop(a);
    rig.Drop(b);
  }
  EXPECT_EQ(rig.cache().stats().slots_used, 0);
}

TEST(RecurrentState, CannotRewind) {
  Rig rig({.page_tokens = 4, .groups = {FullGroup()}, .recurrent = {DeltaLayer()}},
          {.pages = {16}, .slots = 4});
  const size_t a = rig.New();
  rig.Append({{a, 6}});
  EXPECT_EQ(rig.cache().Truncate(rig.sequence(a), 5).error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(rig.cache().Truncate(rig.sequence(a), 6).has_value());
  rig.CheckAll();
  rig.Truncate(a, 0);
  EXPECT_EQ(rig.cache().stats().slots_used, 0);
  rig.Append({{a, 2}});
}

TEST(Slots, AForkSharesTheSlotOnlyAtTheSameOffset) {
  Rig rig({.page_tokens = 4, .groups = {FullGroup()}, .recurrent = {ConvLayer(), DeltaLayer()}},
          {.pages = {16}, .slots = 4});
  const size_t a = rig.New();
  rig.Append({{a, 6}});
  const size_t same = rig.Fork(a, 6);
  EXPECT_TRUE(rig.sequence(same).ready());
  EXPECT_EQ(rig.cache().stats().slots_used, 1);
  const size_t earlier = rig.Fork(a, 5);
  EXPECT_FALSE(rig.sequence(earlier).ready());
  EXPECT_EQ(rig.AppendFails({{earlier, 1}}).code, ErrorCode::kUnsupported);
  const size_t start = rig.Fork(a, 0);
  rig.Append({{start, 1}});
  EXPECT_EQ(rig.cache().stats().slots_used, 2);
  const uint64_t copied = rig.cache().stats().bytes_copied;
  rig.Append({{same, 1}});
  EXPECT_EQ(rig.cache().stats().slots_used, 3);
  EXPECT_EQ(rig.cache().stats().bytes_copied - copied,
            SlotBytes(rig.cache().layout()) + PageBytes(rig.cache().layout(), 0));
}

TEST(Slots, RemappingADestinationReleasesWhatItHeld) {
  Rig rig({.page_tokens = 4, .groups = {FullGroup(), WindowGroup(6)}, .recurrent = {DeltaLayer()}},
          {.pages = {16, 16}, .slots = 4});
  const size_t a = rig.New();
  const size_t b = rig.New();
  rig.Append({{a, 6}, {b, 21}});
  const TokenList tokens = rig.tokens(a);
  const Snapshot snapshot = *rig.cache().CaptureSnapshot(rig.sequence(a));
  EXPECT_EQ(rig.cache().stats().slots_used, 2);
  ASSERT_TRUE(rig.cache().Restore(rig.sequence(b), snapshot).has_value());
  rig.SetTokens(b, tokens);
  rig.CheckAll();
  EXPECT_EQ(rig.cache().stats().slots_used, 1);
  EXPECT_EQ(rig.cache().stats().pages_used, (std::vector<int64_t>{2, 2}));
  // Likewise where a fork takes the place of a sequence.
  rig.Append({{b, 9}});
  EXPECT_EQ(rig.cache().stats().slots_used, 2);
  rig.sequence(b) = *rig.cache().Fork(rig.sequence(a), 6);
  rig.SetTokens(b, tokens);
  rig.CheckAll();
  EXPECT_EQ(rig.cache().stats().slots_used, 1);
  rig.Append({{b, 1}, {a, 1}});
}

TEST(Slots, RunningOutLeavesEveryMapAndCountAsBefore) {
  Rig rig({.page_tokens = 4, .groups = {FullGroup(), WindowGroup(6)}, .recurrent = {DeltaLayer()}},
          {.pages = {16, 16}, .slots = 2});
  const size_t a = rig.New();
  rig.Append({{a, 6}});
  const size_t b = rig.Fork(a, 6);
  const size_t c = rig.Fork(a, 6);
  const CacheStats before = rig.cache().stats();
  const Error error = rig.AppendFails({{a, 1}, {b, 1}, {c, 1}});
  EXPECT_EQ(error.code, ErrorCode::kOutOfSlots);
  EXPECT_NE(error.message.find("state slots: capacity 2, used 1, demand 3"), std::string::npos)
      << error.message;
  EXPECT_EQ(rig.cache().stats().pages_used, before.pages_used);
  EXPECT_EQ(rig.cache().stats().slots_used, before.slots_used);
  rig.CheckAll();
  rig.Drop(c);
  rig.Append({{a, 1}, {b, 1}});
}

TEST(Slots, ADryRunReportsTheWorstCaseAndTouchesNothing) {
  Rig rig({.page_tokens = 4, .groups = {FullGroup()}, .recurrent = {DeltaLayer()}},
          {.pages = {16}, .slots = 2});
  const size_t a = rig.New();
  const size_t b = rig.New();
  rig.Append({{a, 6}});
  const size_t c = rig.Fork(a, 6);
  const Demand demand = rig.Need({{a, 3}, {b, 5}, {c, 1}});
  EXPECT_EQ(demand.pages[0].need, 2 + 2 + 1);
  EXPECT_EQ(demand.slots.need, 3);
  EXPECT_EQ(demand.slots.used, 1);
  EXPECT_FALSE(demand.fits());
  EXPECT_TRUE(rig.Need({{b, 5}}).fits());
  EXPECT_EQ(rig.cache().stats().slots_used, 1);
  EXPECT_EQ(rig.cache().stats().bytes_copied, 0u);
}

TEST(Steps, RefusesWhatIsNotABatch) {
  Rig rig({.page_tokens = 4, .groups = {FullGroup()}}, {.pages = {16}});
  const size_t a = rig.New();
  EXPECT_EQ(rig.AppendFails({{a, 0}}).code, ErrorCode::kInvalid);
  EXPECT_EQ(rig.AppendFails({{a, -3}}).code, ErrorCode::kInvalid);
  EXPECT_EQ(rig.AppendFails({{a, 1}, {a, 1}}).code, ErrorCode::kInvalid);
  EXPECT_EQ(rig.AppendFails({{a, INT32_MAX}}).code, ErrorCode::kOutOfPages);
  const quire::cache::Append append[] = {{&rig.sequence(a), 2}};
  auto step = rig.cache().Begin(append);
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(rig.cache().Begin(append).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(rig.cache().Truncate(rig.sequence(a), 0).error().code, ErrorCode::kInvalid);
}

// A page that a step writes in place must not become shared meanwhile.
TEST(Steps, KeepTheirSequencesToThemselves) {
  Rig rig({.page_tokens = 4, .groups = {FullGroup()}, .recurrent = {DeltaLayer()}},
          {.pages = {16}, .slots = 4});
  const size_t a = rig.New();
  rig.Append({{a, 6}});
  const Snapshot snapshot = *rig.cache().CaptureSnapshot(rig.sequence(a));
  const quire::cache::Append append[] = {{&rig.sequence(a), 2}};
  auto step = rig.cache().Begin(append);
  ASSERT_TRUE(step.has_value());
  const auto code = [](const auto& result) { return result.has_value() ? ErrorCode() : result.error().code; };
  EXPECT_EQ(code(rig.cache().Fork(rig.sequence(a), 6)), ErrorCode::kInvalid);
  EXPECT_EQ(code(rig.cache().CaptureSnapshot(rig.sequence(a))), ErrorCode::kInvalid);
  EXPECT_EQ(code(rig.cache().View(rig.sequence(a))), ErrorCode::kInvalid);
  EXPECT_EQ(code(rig.cache().Restore(rig.sequence(a), snapshot)), ErrorCode::kInvalid);
  EXPECT_EQ(code(rig.cache().RemoveRange(rig.sequence(a), 0, 1, {})), ErrorCode::kInvalid);
  EXPECT_EQ(code(rig.cache().ScheduleCapture(rig.sequence(a), 9)), ErrorCode::kInvalid);
  EXPECT_EQ(code(rig.cache().Speculate(rig.sequence(a))), ErrorCode::kInvalid);
  EXPECT_EQ(code(rig.cache().SpeculateIsolated(rig.sequence(a))), ErrorCode::kInvalid);
  step->reset();
  rig.CheckAll();
}

TEST(Steps, SeveralMayBeOpenOnDifferentSequences) {
  const Layout layout{.page_tokens = 4, .groups = {FullGroup(), WindowGroup(6)}, .recurrent = {DeltaLayer()}};
  Rig rig(layout, {.pages = {16, 16}, .slots = 6});
  const size_t a = rig.New();
  rig.Append({{a, 6}});
  const size_t b = rig.Fork(a, 6);  // shares the page and the slot that both will write
  TokenList first = rig.tokens(a);
  TokenList second = rig.tokens(b);
  first.insert(first.end(), {101, 102, 103});
  second.insert(second.end(), {201, 202});
  const quire::cache::Append to_a[] = {{&rig.sequence(a), 3}};
  const quire::cache::Append to_b[] = {{&rig.sequence(b), 2}};
  auto step_a = rig.cache().Begin(to_a);
  auto step_b = rig.cache().Begin(to_b);
  ASSERT_TRUE(step_a.has_value() && step_b.has_value());
  EXPECT_EQ(RunStep(layout, **step_b, std::vector<TokenList>{second}), "");
  EXPECT_EQ(RunStep(layout, **step_a, std::vector<TokenList>{first}), "");
  EXPECT_EQ(CheckVisible(layout, **step_b, 0, second), "");
  (*step_b)->Commit();
  step_b->reset();
  rig.SetTokens(b, second);
  (*step_a)->Commit();
  step_a->reset();
  rig.SetTokens(a, first);
  rig.CheckAll();
}

TEST(Steps, ACancelledStepLeavesOffsetsPagesAndWindowsAsTheyWere) {
  Rig rig({.page_tokens = 4, .groups = {FullGroup(), WindowGroup(5), WindowGroup(3)}},
          {.pages = {16, 16, 16}});
  const size_t a = rig.New();
  for (int round = 0; round < 9; ++round) {
    const CacheStats before = rig.cache().stats();
    rig.CancelledAppend({{a, 7}});
    EXPECT_EQ(rig.cache().stats().pages_used, before.pages_used);
    rig.CheckAll();
    rig.Append({{a, 1}});
  }
}

TEST(Steps, ACancelledStepThatWroteRecurrentStateLosesItAndOthersDoNot) {
  Rig rig({.page_tokens = 4, .groups = {FullGroup()}, .recurrent = {DeltaLayer()}},
          {.pages = {16}, .slots = 4});
  const size_t a = rig.New();
  rig.CancelledAppend({{a, 2}});
  EXPECT_TRUE(rig.sequence(a).ready());
  EXPECT_EQ(rig.cache().stats().slots_used, 0);
  rig.Append({{a, 2}});
  const size_t b = rig.Fork(a, 2);
  rig.CancelledAppend({{a, 2}});
  EXPECT_FALSE(rig.sequence(a).ready());
  EXPECT_EQ(rig.sequence(a).offset(), 2);
  rig.Append({{b, 1}});
}

TEST(Capacity, OneByteBudgetServesAllKinds) {
  const Layout layout{.page_tokens = 4, .groups = {FullGroup(), WindowGroup(4)}, .recurrent = {DeltaLayer()}};
  const size_t bytes = 8 * (PageBytes(layout, 0) + PageBytes(layout, 1)) + 2 * SlotBytes(layout);
  Rig rig(layout, {.bytes = bytes});
  const size_t a = rig.New();
  rig.Append({{a, 8}});
  rig.Append({{a, 20}});
  EXPECT_LE(rig.cache().stats().used_bytes, bytes);
  EXPECT_LE(rig.cache().stats().resident_bytes, bytes);
  EXPECT_EQ(rig.AppendFails({{a, 400}}).code, ErrorCode::kOutOfPages);
  rig.Drop(a);
  rig.cache().ReleaseFree();
  EXPECT_EQ(rig.cache().stats().resident_bytes, 0u);
}

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t size = 0;
  size_t resident = 0;
  statm >> size >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(Capacity, ResidentMemoryFollowsUse) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer's shadow memory counts as resident";
#endif
  constexpr size_t kMiB = size_t{1} << 20;
  const Layout layout{.page_tokens = 32, .groups = {{.layers = 4, .kv_heads = 8, .head_dim = 64}}};
  Rig rig(layout, {.bytes = 64 * 1024 * kMiB});
  const size_t start = ResidentBytes();
  const size_t a = rig.New();
  const quire::cache::Append append[] = {{&rig.sequence(a), 32 * 256}};
  auto step = rig.cache().Begin(append);
  ASSERT_TRUE(step.has_value());
  for (const PageView& page : (*step)->Pages(0, 0)) std::memset(page.base, 1, PageBytes(layout, 0));
  (*step)->Commit();
  step->reset();
  EXPECT_EQ(rig.cache().stats().used_bytes, 128 * kMiB);
  EXPECT_GT(ResidentBytes(), start + 100 * kMiB);
  EXPECT_LT(ResidentBytes(), start + 200 * kMiB);
  rig.Drop(a);
  rig.cache().ReleaseFree();
  EXPECT_LT(ResidentBytes(), start + 64 * kMiB);
}

TEST(Capacity, TheLargestSequenceIsTheLargestThatFits) {
  const Layout layout{.page_tokens = 4, .groups = {FullGroup(), WindowGroup(6)}, .recurrent = {DeltaLayer()}};
  for (const size_t blocks : {6, 9, 20}) {
    const Capacity capacity{.bytes = blocks * (PageBytes(layout, 0) + PageBytes(layout, 1)) +
                                     SlotBytes(layout) + 100};
    Rig rig(layout, capacity);
    const auto largest = rig.cache().LargestSequence(1);
    EXPECT_GT(largest, 0);
    const size_t a = rig.New();
    for (Position at = 0; at < largest; ++at) rig.Append({{a, 1}});
  }
}

TEST(Capacity, RefusesWhatIsNoCapacity) {
  const Layout layout{.groups = {FullGroup()}, .recurrent = {DeltaLayer()}};
  for (const Capacity& capacity :
       {Capacity{}, Capacity{.pages = {1, 2}, .slots = 1}, Capacity{.pages = {0}, .slots = 1},
        Capacity{.pages = {4}}, Capacity{.bytes = 1 << 20, .slots = -1}}) {
    const auto cache = HybridCache::Create(layout, capacity);
    ASSERT_FALSE(cache.has_value());
    EXPECT_EQ(cache.error().code, ErrorCode::kInvalid);
  }
}

// Compute threads read and write disjoint sequences of one step at once.
TEST(Threads, ComputeThreadsUseAStepTogether) {
  const Layout layout{.page_tokens = 4, .groups = {FullGroup(), WindowGroup(6)}, .recurrent = {DeltaLayer()}};
  Rig rig(layout, {.pages = {64, 64}, .slots = 8});
  std::vector<quire::cache::Append> appends;
  for (int i = 0; i < 4; ++i) rig.New();
  for (size_t i = 0; i < 4; ++i) appends.push_back({&rig.sequence(i), 9});
  auto step = rig.cache().Begin(appends);
  ASSERT_TRUE(step.has_value());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (size_t g = 0; g < 2; ++g) {
        for (const PageView& page : (*step)->Pages(i, g)) {
          std::memset(page.base, static_cast<int>(i), PageBytes(layout, g));
        }
      }
      std::memset((*step)->Slot(i), static_cast<int>(i), SlotBytes(layout));
    });
  }
  for (std::thread& thread : threads) thread.join();
  (*step)->Commit();
  EXPECT_TRUE(rig.cache().CheckInvariants().has_value());
}

}  // namespace
}  // namespace quire::cache
