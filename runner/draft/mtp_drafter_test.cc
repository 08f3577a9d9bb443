#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "runner/draft/drafters.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::draft {
namespace {

constexpr int32_t kVocab = 100;
constexpr int32_t kHidden = 2;

// Predicts the next number of each token, and records what it computes.
class CountingLayer final : public models::MtpLayer {
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

class MtpDrafterTest : public testing::Test {
 protected:
  MtpDrafterTest()
      : drafter_(*MakeMtpDrafter(std::make_unique<CountingLayer>(seen_), kVocab, kHidden, 1 << 20)) {}

  static std::vector<TokenId> Numbers(TokenId count) {
    std::vector<TokenId> tokens(static_cast<size_t>(count));
    for (TokenId i = 0; i < count; ++i) tokens[static_cast<size_t>(i)] = i % kVocab;
    return tokens;
  }

  std::unique_ptr<DraftState> CreateState(std::span<const TokenId> tokens) {
    return drafter_->CreateState({.isolation = "", .tokens = tokens, .boundaries = {}});
  }

  // The draft behind `tokens`, of which the target has just computed the last `computed` but one.
  std::vector<TokenId> Draft(DraftState& state, std::span<const TokenId> tokens, int32_t computed,
                             int32_t num_draft_tokens) {
    seen_ = {};
    const std::vector<float> hidden(static_cast<size_t>(computed) * kHidden, 1.0F);
    std::vector<TokenId> drafts;
    const DraftRequest request{.state = &state,
                               .tokens = tokens,
                               .target = nullptr,
                               .hidden = hidden,
                               .num_draft_tokens = num_draft_tokens,
                               .draft_tokens = &drafts};
    drafter_->ProposeDrafts({&request, 1}, pool_);
    return drafts;
  }

  CountingLayer::Seen seen_;
  ThreadPool pool_{1};
  std::unique_ptr<Drafter> drafter_;
};

TEST_F(MtpDrafterTest, DraftsBehindTheNewestToken) {
  const auto tokens = Numbers(10);
  const auto state = CreateState(tokens);
  EXPECT_EQ(Draft(*state, tokens, 9, 3), (std::vector<TokenId>{10, 11, 12}));
  // Nine pairs, then two draft tokens to continue from.
  EXPECT_EQ(seen_.tokens, (std::vector<TokenId>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(seen_.without_state, 0);
}

TEST_F(MtpDrafterTest, RecomputesDraftsFromTheTargetsStates) {
  auto tokens = Numbers(10);
  const auto state = CreateState(tokens);
  Draft(*state, tokens, 9, 3);
  tokens.insert(tokens.end(), {10, 11});
  EXPECT_EQ(Draft(*state, tokens, 2, 1), (std::vector<TokenId>{12}));
  EXPECT_EQ(seen_.tokens, (std::vector<TokenId>{10, 11}));
}

TEST_F(MtpDrafterTest, APrefixIsNotComputedAgain) {
  auto tokens = Numbers(40);
  auto state = CreateState(tokens);
  Draft(*state, tokens, 39, 2);
  drafter_->End(std::move(state), tokens);
  // The target reuses 40 tokens; the state of the last of them is not stored.
  tokens.insert(tokens.end(), {70, 71, 72});
  state = CreateState(tokens);
  EXPECT_EQ(Draft(*state, tokens, 2, 1), (std::vector<TokenId>{73}));
  EXPECT_EQ(seen_.tokens, (std::vector<TokenId>{70, 71, 72}));
  EXPECT_EQ(seen_.without_state, 1);
}

// The entry of token 19 was computed with token 20.
TEST_F(MtpDrafterTest, AnEntryIsKnownByTheTokenBehindItToo) {
  auto tokens = Numbers(40);
  auto state = CreateState(tokens);
  Draft(*state, tokens, 39, 0);
  drafter_->End(std::move(state), tokens);
  tokens.resize(20);
  tokens.insert(tokens.end(), {70, 71, 72});
  state = CreateState(tokens);
  Draft(*state, tokens, 3, 1);
  EXPECT_EQ(seen_.tokens, (std::vector<TokenId>{70, 71, 72}));
  EXPECT_EQ(seen_.without_state, 0);
}

TEST_F(MtpDrafterTest, WhereTheTargetReusesLessItGoesBack) {
  auto tokens = Numbers(40);
  auto state = CreateState(tokens);
  Draft(*state, tokens, 39, 0);
  drafter_->End(std::move(state), tokens);
  state = CreateState(tokens);
  Draft(*state, tokens, 30, 1);
  EXPECT_EQ(seen_.tokens.size(), 30U);
  EXPECT_EQ(seen_.tokens.front(), 10);
}

TEST_F(MtpDrafterTest, BeginsBehindALongPrefixItNeverSaw) {
  auto tokens = Numbers(90);
  auto state = CreateState(tokens);
  EXPECT_EQ(Draft(*state, tokens, 4, 1), (std::vector<TokenId>{90}));
  EXPECT_EQ(seen_.tokens.size(), 4U);
  // Its entries do not stand where others would look for them.
  drafter_->End(std::move(state), tokens);
  state = CreateState(tokens);
  Draft(*state, tokens, 89, 1);
  EXPECT_EQ(seen_.tokens.size(), 89U);
}

TEST_F(MtpDrafterTest, ARunningNeighborIsForked) {
  auto tokens = Numbers(40);
  const auto first = CreateState(tokens);
  Draft(*first, tokens, 39, 3);
  auto others = tokens;
  others.insert(others.end(), {50, 51});
  const auto second = drafter_->CreateState(
      {.isolation = "", .tokens = others, .boundaries = {}, .neighbor = first.get(), .shared = 39});
  EXPECT_EQ(Draft(*second, others, 2, 1), (std::vector<TokenId>{52}));
  EXPECT_EQ(seen_.tokens, (std::vector<TokenId>{39, 50, 51}));
  EXPECT_EQ(seen_.without_state, 1);
}

}  // namespace
}  // namespace quire::runner::draft
