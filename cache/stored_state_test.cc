#include "cache/stored_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "cache/snapshot_store.h"
#include "cache/testing/fake_model.h"

namespace quire::cache {
namespace {

// A state as a small Mamba-2 layer has it: 4 heads of 32 x 32 and a convolution tail.
Layout KeptAs(ElementType type) {
  return {.page_tokens = 4,
          .groups = {FullGroup()},
          .recurrent = {{.conv_tail = 3,
                         .conv_dim = 8,
                         .delta_heads = 4,
                         .delta_value_dim = 32,
                         .delta_key_dim = 32,
                         .record_bytes = 4}},
          .stored_state = type};
}

using State = std::vector<float>;

// Blocks of 32 numbers, of 16 magnitudes from 2^lowest on.
State RandomState(const Layout& layout, uint64_t seed, int lowest = -6) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  State state(SlotBytes(layout) / sizeof(float));
  for (size_t i = 0; i < state.size(); ++i) {
    state[i] = std::ldexp(normal(random), static_cast<int>(i / 32 % 16) + lowest);
  }
  return state;
}

TokenList StoredTokens(size_t count, TokenId last) {
  TokenList tokens(count, 7);
  tokens.back() = last;
  return tokens;
}

class StoredState : public testing::TestWithParam<ElementType> {
 protected:
  // A sequence of as many tokens with this state.
  Sequence Compute(size_t tokens, const State& state) {
    Sequence sequence = cache_->NewSequence();
    const Append appends[] = {{&sequence, static_cast<int32_t>(tokens)}};
    auto step = cache_->Begin(appends);
    EXPECT_TRUE(step.has_value());
    std::memcpy((*step)->Slot(0), state.data(), state.size() * sizeof(float));
    (*step)->Commit();
    return sequence;
  }
  void Insert(const TokenList& tokens, const State& state) {
    const Sequence sequence = Compute(tokens.size(), state);
    EXPECT_TRUE(store_.Insert("", tokens, *cache_->CaptureSnapshot(sequence)).has_value());
  }
  // The state that a longer prompt begins with.
  State Restored(TokenList tokens) {
    const size_t size = tokens.size();
    tokens.push_back(1);
    Sequence sequence = cache_->NewSequence();
    EXPECT_EQ(store_.Restore("", tokens, sequence).restored, static_cast<Position>(size));
    const auto view = cache_->View(sequence);
    State state(SlotBytes(layout_) / sizeof(float));
    std::memcpy(state.data(), (*view)->Slot(0), state.size() * sizeof(float));
    return state;
  }

  Layout layout_ = KeptAs(GetParam());
  std::unique_ptr<HybridCache> cache_ = *HybridCache::Create(layout_, {.bytes = 8 << 20});
  SnapshotStore store_{*cache_, {.budget_bytes = 4 << 20}};
};

INSTANTIATE_TEST_SUITE_P(Types, StoredState,
                         testing::Values(ElementType::kF32, ElementType::kBF16, ElementType::kQ8_0),
                         [](const auto& type) {
                           return type.param == ElementType::kF32    ? "f32"
                                  : type.param == ElementType::kBF16 ? "bf16"
                                                                     : "q8_0";
                         });

TEST_P(StoredState, ComesBackWithinItsBound) {
  // The smallest blocks have scales below the normal numbers of float16.
  const State state = RandomState(layout_, 3, -20);
  Insert(StoredTokens(21, 1), state);
  const State back = Restored(StoredTokens(21, 1));
  const size_t tail = DeltaOffset(layout_, 0) / sizeof(float);
  for (size_t i = 0; i < state.size(); ++i) {
    float bound = 0;  // of float32 and of convolution tails
    if (i >= tail && GetParam() == ElementType::kBF16) bound = std::abs(state[i]) * 0x1p-8F;
    if (i >= tail && GetParam() == ElementType::kQ8_0) {
      const auto block = state.begin() + static_cast<std::ptrdiff_t>(tail + (i - tail) / 32 * 32);
      const auto [low, high] = std::minmax_element(block, block + 32);
      const float scale = std::max(-*low, *high) / 127 * (1 + 0x1p-10F) + 0x1p-24F;
      bound = scale / 2 * (1 + 0x1p-10F);
    }
    ASSERT_LE(std::abs(back[i] - state[i]), bound) << i << ": " << state[i] << " came back as " << back[i];
  }
}

TEST_P(StoredState, SixteenBranchesTakeTheBytesOfTheType) {
  for (TokenId branch = 0; branch < 16; ++branch) {
    Insert(StoredTokens(20, branch), RandomState(layout_, static_cast<uint64_t>(branch)));
  }
  const size_t expected = 16 * StoredSlotBytes(layout_);
  EXPECT_EQ(store_.stats().slot_bytes, expected);
  const double share = static_cast<double>(expected) / static_cast<double>(16 * SlotBytes(layout_));
  if (GetParam() == ElementType::kF32) {
    EXPECT_EQ(share, 1);
  }
  if (GetParam() == ElementType::kBF16) {
    EXPECT_LT(share, 0.504);
  }
  if (GetParam() == ElementType::kQ8_0) {
    EXPECT_LT(share, 0.272);
  }
  // Nobody computes: float32 states are those of the store only.
  EXPECT_EQ(cache_->stats().slots_used, GetParam() == ElementType::kF32 ? 16 : 0);
  const auto sound = store_.CheckInvariants();
  EXPECT_TRUE(sound.has_value()) << sound.error();
  const auto cache_sound = cache_->CheckInvariants();
  EXPECT_TRUE(cache_sound.has_value()) << cache_sound.error();
}

// Errors do not add up while a state is restored and stored again.
TEST_P(StoredState, IsTheSameAfterASecondTime) {
  Insert(StoredTokens(21, 1), RandomState(layout_, 5));
  const State once = Restored(StoredTokens(21, 1));
  Insert(StoredTokens(33, 2), once);
  EXPECT_EQ(Restored(StoredTokens(33, 2)), once);
}

TEST(StoredStates, WithoutASlotNothingIsRestored) {
  const Layout layout = KeptAs(ElementType::kBF16);
  const auto cache = *HybridCache::Create(layout, {.pages = {256}, .slots = 1});
  SnapshotStore store(*cache, {.budget_bytes = SIZE_MAX});
  Sequence first = cache->NewSequence();
  const Append appends[] = {{&first, 8}};
  auto step = cache->Begin(appends);
  (*step)->Commit();
  step->reset();
  ASSERT_TRUE(store.Insert("", StoredTokens(8, 1), *cache->CaptureSnapshot(first)).has_value());
  Sequence second = cache->NewSequence();
  TokenList longer = StoredTokens(8, 1);
  longer.push_back(2);
  {
    const auto refused = store.Restore("", longer, second);
    EXPECT_TRUE(refused.out_of_memory);
    EXPECT_FALSE(refused.lease);
    EXPECT_EQ(refused.restored, 0);
    EXPECT_EQ(second.offset(), 0);
    EXPECT_EQ(store.stats().lookups, 0u);
  }
  first = Sequence();
  EXPECT_EQ(store.Restore("", longer, second).restored, 8);
}

TEST(StoredStates, NumbersThatAreNotFiniteStayVisible) {
  for (const ElementType type : {ElementType::kBF16, ElementType::kQ8_0}) {
    const Layout layout = KeptAs(type);
    State state = RandomState(layout, 9);
    const size_t at = DeltaOffset(layout, 0) / sizeof(float);
    state[at] = std::numeric_limits<float>::infinity();
    state[at + 32] = std::nanf("");
    std::vector<std::byte> stored(StoredSlotBytes(layout));
    State back(state.size());
    StoreState(layout, reinterpret_cast<const std::byte*>(state.data()), stored.data());
    LoadState(layout, stored.data(), reinterpret_cast<std::byte*>(back.data()));
    EXPECT_FALSE(std::isfinite(back[at]));
    EXPECT_TRUE(std::isnan(back[at + 32]));
    EXPECT_TRUE(std::isfinite(back[at + 64]));
  }
}

TEST(StoredStates, TheLayoutSaysWhichTypesThereAre) {
  EXPECT_FALSE(Validate(KeptAs(ElementType::kF16)).has_value());
  Layout odd = KeptAs(ElementType::kQ8_0);
  EXPECT_TRUE(Validate(odd).has_value());
  odd.recurrent[0].delta_heads = 1;
  odd.recurrent[0].delta_value_dim = 3;
  odd.recurrent[0].delta_key_dim = 5;
  EXPECT_FALSE(Validate(odd).has_value());
  odd.stored_state = ElementType::kBF16;
  EXPECT_TRUE(Validate(odd).has_value());
}

}  // namespace
}  // namespace quire::cache
