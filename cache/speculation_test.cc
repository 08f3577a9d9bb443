#include "cache/speculation.h"

#include <gtest/gtest.h>

#include "cache/testing/test_rig.h"

namespace quire::cache {
namespace {

std::vector<std::pair<Layout, Capacity>> SpeculationMixes() {
  const Layout causal{.page_tokens = 4, .groups = {FullGroup()}};
  const Layout windows{.page_tokens = 4, .groups = {FullGroup(), WindowGroup(6), WindowGroup(5)}};
  const Layout recurrent{.recurrent = {ConvLayer(), DeltaLayer()}};
  Layout all = windows;
  all.recurrent = recurrent.recurrent;
  return {{causal, {.pages = {64}}},
          {windows, {.pages = {64, 64, 64}}},
          {recurrent, {.slots = 8}},
          {all, {.pages = {64, 64, 64}, .slots = 8}}};
}

Speculation Open(Rig& rig, size_t i) {
  auto draft = rig.cache().Speculate(rig.sequence(i));
  EXPECT_TRUE(draft.has_value());
  return std::move(*draft);
}

// Every base offset, draft length and accepted count, in one step and in several, crossing page and window
// edges.
TEST(Speculation, CommitEndsWithTheRightContentsForEveryAcceptedCount) {
  for (const auto& [layout, capacity] : SpeculationMixes()) {
    for (const int32_t base : {0, 1, 4, 5, 9}) {
      for (int32_t keep = 0; keep <= 7; ++keep) {
        Rig rig(layout, capacity);
        const size_t a = rig.New();
        if (base > 0) rig.Append({{a, base}});
        Speculation draft = Open(rig, a);
        rig.Append({{a, 3}});
        rig.Append({{a, 1}});
        rig.Append({{a, 3}});
        EXPECT_EQ(draft.drafted(), 7);
        rig.Commit(a, draft, keep);
        EXPECT_EQ(rig.sequence(a).offset(), base + keep);
        rig.Append({{a, 2}});
        rig.Append({{a, 9}});
      }
    }
  }
}

TEST(Speculation, DroppedDraftsLeaveNoTrace) {
  for (const auto& [layout, capacity] : SpeculationMixes()) {
    Rig rig(layout, capacity);
    const size_t a = rig.New();
    rig.Append({{a, 7}});
    const CacheStats before = rig.cache().stats();
    {
      Speculation draft = Open(rig, a);
      rig.Append({{a, 6}});
    }
    rig.DiscardDraft(a, 7);
    EXPECT_EQ(rig.cache().stats().pages_used, before.pages_used);
    EXPECT_EQ(rig.cache().stats().slots_used, before.slots_used);
    rig.CheckAll();
    rig.Append({{a, 1}});
  }
}

TEST(Speculation, NothingOutsideSeesADraftToken) {
  for (const auto& [layout, capacity] : SpeculationMixes()) {
    Rig rig(layout, capacity);
    const size_t a = rig.New();
    rig.Append({{a, 7}});
    const TokenList tokens = rig.tokens(a);
    Speculation draft = Open(rig, a);
    rig.Append({{a, 4}});
    // The read-only view is what a draft head attends to: the target's tokens before the draft.
    const auto view = rig.cache().View(rig.sequence(a));
    ASSERT_TRUE(view.has_value());
    EXPECT_EQ(CheckVisible(layout, **view, 0, tokens), "");
    EXPECT_EQ(CheckState(layout, **view, 0, tokens), "");
    EXPECT_FALSE(rig.cache().Fork(rig.sequence(a), 8).has_value());
    const size_t b = rig.Fork(a, 7);
    EXPECT_TRUE(rig.sequence(b).ready());
    auto snapshot = rig.cache().CaptureSnapshot(rig.sequence(a));
    ASSERT_TRUE(snapshot.has_value());
    EXPECT_EQ(snapshot->to(), 7);
    EXPECT_EQ(rig.cache().Truncate(rig.sequence(a), 7).error().code, ErrorCode::kInvalid);
    EXPECT_EQ(rig.cache().ScheduleCapture(rig.sequence(a), 20).error().code, ErrorCode::kInvalid);
    EXPECT_EQ(rig.cache().Speculate(rig.sequence(a)).error().code, ErrorCode::kInvalid);
    rig.Append({{a, 1}});
    rig.Append({{b, 2}});
    rig.Commit(a, draft, 3);
    const size_t c = rig.Restore(*snapshot, tokens);
    rig.Append({{c, 3}});
  }
}

// A draft head reads the target's keys and values in place while the target drafts and its own draft grows.
TEST(Speculation, AReadOnlyViewLetsADraftHeadAttendToTheTargetsKv) {
  for (const auto& [layout, capacity] : SpeculationMixes()) {
    Rig rig(layout, capacity);
    const size_t target = rig.New();
    const size_t head = rig.New();
    rig.Append({{target, 7}});
    const TokenList tokens = rig.tokens(target);
    const CacheStats before = rig.cache().stats();
    const auto view = rig.cache().View(rig.sequence(target));
    ASSERT_TRUE(view.has_value());
    EXPECT_EQ((*view)->sequences(), 1u);
    EXPECT_EQ((*view)->offset(0), 7);
    EXPECT_EQ((*view)->new_tokens(0), 0);
    EXPECT_EQ(rig.cache().stats().used_bytes, before.used_bytes);
    EXPECT_EQ(rig.cache().stats().bytes_copied, before.bytes_copied);
    for (int drafted = 0; drafted < 4; ++drafted) {
      rig.Append({{head, 1}});
      EXPECT_EQ(CheckVisible(layout, **view, 0, tokens), "");
      EXPECT_EQ(CheckState(layout, **view, 0, tokens), "");
    }
  }
}

TEST(Speculation, ADraftNeedsRecordedInputs) {
  Layout layout{.page_tokens = 4, .groups = {FullGroup()}, .recurrent = {ConvLayer(), DeltaLayer()}};
  layout.recurrent[1].record_bytes = 0;
  Rig rig(layout, {.pages = {16}, .slots = 4});
  const size_t a = rig.New();
  const auto refused = rig.cache().Speculate(rig.sequence(a));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("recurrent[1].record_bytes"), std::string::npos);
  EXPECT_TRUE(rig.cache().SpeculateIsolated(rig.sequence(a)).has_value());
}

// The token sampled from the last accepted position comes with the next step, at s + n.
TEST(Speculation, TheTokenSampledAfterTheDraftIsNotCommitted) {
  for (const auto& [layout, capacity] : SpeculationMixes()) {
    Rig rig(layout, capacity);
    const size_t a = rig.New();
    rig.Append({{a, 5}});
    Speculation draft = Open(rig, a);
    rig.Append({{a, 4}});
    EXPECT_EQ(draft.drafted(), 4);
    EXPECT_EQ(draft.Commit(5, {}).error().code, ErrorCode::kInvalid);
    rig.Commit(a, draft, 4);
    EXPECT_EQ(rig.sequence(a).offset(), 9);
    rig.AppendTokens(a, {4711});
    EXPECT_EQ(rig.tokens(a).back(), 4711);
    EXPECT_EQ(rig.sequence(a).offset(), 10);
  }
}

TEST(Speculation, AnIsolatedDraftNeverTouchesTheSequence) {
  for (const auto& [layout, capacity] : SpeculationMixes()) {
    Rig rig(layout, capacity);
    const size_t a = rig.New();
    rig.Append({{a, 7}});
    const CacheStats before = rig.cache().stats();
    auto draft = rig.cache().SpeculateIsolated(rig.sequence(a));
    ASSERT_TRUE(draft.has_value());
    TokenList tokens = rig.tokens(a);
    for (int k = 0; k < 3; ++k) {
      tokens.push_back(1000 + k);
      const quire::cache::Append append[] = {{&draft->sequence(), 1}};
      auto step = rig.cache().Begin(append);
      ASSERT_TRUE(step.has_value());
      EXPECT_EQ(RunStep(layout, **step, std::vector<TokenList>{tokens}), "");
      (*step)->Commit();
    }
    EXPECT_EQ(draft->base(), 7);
    EXPECT_EQ(draft->drafted(), 3);
    rig.CheckAll();
    EXPECT_EQ(draft->Commit(1, {}).error().code, ErrorCode::kUnsupported);
    Speculation moved = std::move(*draft);
    EXPECT_EQ(moved.drafted(), 3);
    moved.Drop();
    EXPECT_EQ(rig.cache().stats().pages_used, before.pages_used);
    EXPECT_EQ(rig.cache().stats().slots_used, before.slots_used);
    rig.CheckAll();
    rig.Append({{a, 2}});
  }
}

TEST(Speculation, ASequenceGoesOnAndDraftsBesideAnIsolatedDraft) {
  for (const auto& [layout, capacity] : SpeculationMixes()) {
    Rig rig(layout, capacity);
    const size_t a = rig.New();
    rig.Append({{a, 7}});
    TokenList tokens = rig.tokens(a);
    auto isolated = rig.cache().SpeculateIsolated(rig.sequence(a));
    ASSERT_TRUE(isolated.has_value());
    {
      Speculation live = Open(rig, a);
      EXPECT_EQ(rig.cache().SpeculateIsolated(rig.sequence(a)).error().code, ErrorCode::kInvalid);
      rig.Append({{a, 6}});
      rig.Commit(a, live, 2);
    }
    rig.Append({{a, 3}});
    tokens.insert(tokens.end(), {1000, 1001});
    const quire::cache::Append append[] = {{&isolated->sequence(), 2}};
    auto step = rig.cache().Begin(append);
    ASSERT_TRUE(step.has_value());
    EXPECT_EQ(RunStep(layout, **step, std::vector<TokenList>{tokens}), "");
    (*step)->Commit();
    rig.CheckAll();
  }
}

TEST(Speculation, RunsBesideOtherSequencesOfABatch) {
  for (const auto& [layout, capacity] : SpeculationMixes()) {
    Rig rig(layout, capacity);
    const size_t a = rig.New();
    const size_t b = rig.New();
    const size_t c = rig.New();
    rig.Append({{a, 5}, {b, 6}});
    Speculation first = Open(rig, a);
    Speculation second = Open(rig, b);
    rig.Append({{a, 4}, {c, 7}, {b, 3}});
    rig.Commit(b, second, 3);
    rig.Commit(a, first, 1);
    rig.Append({{a, 1}, {b, 1}, {c, 1}});
  }
}

TEST(Speculation, SurvivesACancelledStep) {
  for (const auto& [layout, capacity] : SpeculationMixes()) {
    for (const int32_t keep : {0, 1, 2}) {
      Rig rig(layout, capacity);
      const size_t a = rig.New();
      rig.Append({{a, 4}});
      Speculation draft = Open(rig, a);
      rig.Append({{a, 2}});
      rig.CancelledAppend({{a, 3}});
      const auto done = draft.Commit(keep, [&](size_t layer, std::byte* slot, auto inputs, int32_t tokens) {
        ReplayTokens(layout, layer, slot, inputs, tokens);
      });
      ASSERT_TRUE(done.has_value()) << done.error().message;
      rig.DiscardDraft(a, 4 + keep);
      rig.CheckAll();
      rig.Append({{a, 2}});
    }
  }
}

TEST(Speculation, TakesTheCapturesItsCommitReaches) {
  for (const auto& [layout, capacity] : SpeculationMixes()) {
    Rig rig(layout, capacity);
    const size_t a = rig.New();
    rig.Append({{a, 4}});
    ASSERT_TRUE(rig.cache().ScheduleCapture(rig.sequence(a), 6).has_value());
    ASSERT_TRUE(rig.cache().ScheduleCapture(rig.sequence(a), 9).has_value());
    Speculation draft = Open(rig, a);
    rig.Append({{a, 5}});
    rig.Commit(a, draft, 2);
    std::vector<Snapshot> captures = rig.cache().TakeCaptures(rig.sequence(a));
    ASSERT_EQ(captures.size(), 1u);
    EXPECT_EQ(captures[0].to(), 6);
    const size_t b = rig.Restore(captures[0], rig.tokens(a));
    rig.Append({{b, 2}, {a, 3}});
    EXPECT_EQ(rig.cache().TakeCaptures(rig.sequence(a)).size(), 1u);
  }
}

TEST(Speculation, RefusesWhatIsNoCommit) {
  const auto [layout, capacity] = SpeculationMixes()[3];
  Rig rig(layout, capacity);
  const size_t a = rig.New();
  rig.Append({{a, 4}});
  Speculation draft = Open(rig, a);
  rig.Append({{a, 2}});
  EXPECT_EQ(draft.Commit(-1, {}).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(draft.Commit(3, {}).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(draft.Commit(1, {}).error().code, ErrorCode::kInvalid) << "no replay";
  rig.Commit(a, draft, 2);
  EXPECT_EQ(draft.Commit(0, {}).error().code, ErrorCode::kInvalid);
}

}  // namespace
}  // namespace quire::cache
