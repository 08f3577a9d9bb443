#include "runner/draft/layer_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "runner/kernels/thread_pool.h"

namespace quire::runner::draft {
namespace {

constexpr int32_t kVocab = 100;
constexpr int32_t kHidden = 2;

// Predicts of each token the next number, and says what it was asked to compute.
class CountingLayer final : public models::PredictionLayer {
 public:
  struct Seen {
    std::vector<TokenId> tokens;
    int32_t without_state = 0;
  };
  explicit CountingLayer(Seen& seen) : seen_(seen) {
    layout_.groups = {{.layers = 1, .kv_heads = 1, .head_dim = 2}};
  }

  const cache::Layout& cache_layout() const override { return layout_; }
  int64_t weight_bytes() const override { return 0; }
  void Forward(const models::Batch& batch, std::span<const float> before, const cache::StepView&, ThreadPool&,
               const models::Outputs& outputs) override {
    ASSERT_EQ(before.size(), batch.tokens.size() * kHidden);
    seen_.tokens.insert(seen_.tokens.end(), batch.tokens.begin(), batch.tokens.end());
    for (size_t row = 0; row < batch.tokens.size(); ++row) {
      seen_.without_state += before[row * kHidden] == 0.0F ? 1 : 0;
    }
    std::ranges::fill(outputs.logits, 0.0F);
    std::ranges::fill(outputs.hidden, 1.0F);
    for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
      const auto token = batch.tokens[static_cast<size_t>(batch.logit_rows[i])];
      outputs.logits[i * kVocab + static_cast<size_t>(token + 1) % kVocab] = 1.0F;
    }
  }

 private:
  Seen& seen_;
  cache::Layout layout_;
};

class LayerDrafterTest : public testing::Test {
 protected:
  LayerDrafterTest()
      : drafter_(*MakeLayerDrafter(std::make_unique<CountingLayer>(seen_), kVocab, kHidden, 1 << 20)) {}

  static std::vector<TokenId> Numbers(TokenId count) {
    std::vector<TokenId> tokens(static_cast<size_t>(count));
    for (TokenId i = 0; i < count; ++i) tokens[static_cast<size_t>(i)] = i % kVocab;
    return tokens;
  }

  std::unique_ptr<Trail> Begin(std::span<const TokenId> tokens) {
    return drafter_->Begin({.isolation = "", .tokens = tokens, .boundaries = {}});
  }

  // What it guesses behind `tokens`, of which the target has just computed the last `computed` but one.
  std::vector<TokenId> Guess(Trail& trail, std::span<const TokenId> tokens, int32_t computed, int32_t depth) {
    seen_ = {};
    const std::vector<float> hidden(static_cast<size_t>(computed) * kHidden, 1.0F);
    std::vector<TokenId> guesses;
    const Wish wish{.trail = &trail,
                    .tokens = tokens,
                    .target = nullptr,
                    .hidden = hidden,
                    .depth = depth,
                    .guesses = &guesses};
    drafter_->Guess({&wish, 1}, pool_);
    return guesses;
  }

  CountingLayer::Seen seen_;
  ThreadPool pool_{1};
  std::unique_ptr<Drafter> drafter_;
};

TEST_F(LayerDrafterTest, GuessesBehindTheNewestToken) {
  const auto tokens = Numbers(10);
  const auto trail = Begin(tokens);
  EXPECT_EQ(Guess(*trail, tokens, 9, 3), (std::vector<TokenId>{10, 11, 12}));
  // Nine pairs, then two guesses to go on from.
  EXPECT_EQ(seen_.tokens, (std::vector<TokenId>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(seen_.without_state, 0);
}

TEST_F(LayerDrafterTest, ComputesWhatItGuessedAgainFromTheTargetsStates) {
  auto tokens = Numbers(10);
  const auto trail = Begin(tokens);
  Guess(*trail, tokens, 9, 3);
  tokens.insert(tokens.end(), {10, 11});
  EXPECT_EQ(Guess(*trail, tokens, 2, 1), (std::vector<TokenId>{12}));
  EXPECT_EQ(seen_.tokens, (std::vector<TokenId>{10, 11}));
}

TEST_F(LayerDrafterTest, APrefixIsNotComputedAgain) {
  auto tokens = Numbers(40);
  auto trail = Begin(tokens);
  Guess(*trail, tokens, 39, 2);
  drafter_->End(std::move(trail), tokens);
  // The target reuses 40 tokens; the state of the last of them nobody kept.
  tokens.insert(tokens.end(), {70, 71, 72});
  trail = Begin(tokens);
  EXPECT_EQ(Guess(*trail, tokens, 2, 1), (std::vector<TokenId>{73}));
  EXPECT_EQ(seen_.tokens, (std::vector<TokenId>{70, 71, 72}));
  EXPECT_EQ(seen_.without_state, 1);
}

// The entry of token 19 was computed with token 20.
TEST_F(LayerDrafterTest, AnEntryIsKnownByTheTokenBehindItToo) {
  auto tokens = Numbers(40);
  auto trail = Begin(tokens);
  Guess(*trail, tokens, 39, 0);
  drafter_->End(std::move(trail), tokens);
  tokens.resize(20);
  tokens.insert(tokens.end(), {70, 71, 72});
  trail = Begin(tokens);
  Guess(*trail, tokens, 3, 1);
  EXPECT_EQ(seen_.tokens, (std::vector<TokenId>{70, 71, 72}));
  EXPECT_EQ(seen_.without_state, 0);
}

TEST_F(LayerDrafterTest, WhereTheTargetReusesLessItGoesBack) {
  auto tokens = Numbers(40);
  auto trail = Begin(tokens);
  Guess(*trail, tokens, 39, 0);
  drafter_->End(std::move(trail), tokens);
  trail = Begin(tokens);
  Guess(*trail, tokens, 30, 1);
  EXPECT_EQ(seen_.tokens.size(), 30U);
  EXPECT_EQ(seen_.tokens.front(), 10);
}

TEST_F(LayerDrafterTest, BeginsBehindALongPrefixItNeverSaw) {
  auto tokens = Numbers(90);
  auto trail = Begin(tokens);
  EXPECT_EQ(Guess(*trail, tokens, 4, 1), (std::vector<TokenId>{90}));
  EXPECT_EQ(seen_.tokens.size(), 4U);
  // Its entries do not stand where others would look for them.
  drafter_->End(std::move(trail), tokens);
  trail = Begin(tokens);
  Guess(*trail, tokens, 89, 1);
  EXPECT_EQ(seen_.tokens.size(), 89U);
}

TEST_F(LayerDrafterTest, ARunningNeighbourIsForked) {
  auto tokens = Numbers(40);
  const auto first = Begin(tokens);
  Guess(*first, tokens, 39, 3);
  auto others = tokens;
  others.insert(others.end(), {50, 51});
  const auto second = drafter_->Begin(
      {.isolation = "", .tokens = others, .boundaries = {}, .neighbour = first.get(), .shared = 39});
  EXPECT_EQ(Guess(*second, others, 2, 1), (std::vector<TokenId>{52}));
  EXPECT_EQ(seen_.tokens, (std::vector<TokenId>{39, 50, 51}));
  EXPECT_EQ(seen_.without_state, 1);
}

}  // namespace
}  // namespace quire::runner::draft
