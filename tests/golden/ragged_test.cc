// Results are bit-identical whatever else is in the batch and however a prompt is chunked.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <vector>

#include "cache/hybrid_cache.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/model.h"
#include "runner/weights/model_files.h"
#include "tests/data/test_data.h"

namespace quire::runner::golden {
namespace {

using models::TokenId;

class RaggedTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::filesystem::path path = test_data::FindOrTiny(GetParam());
    if (path.empty()) GTEST_SKIP() << "no " << GetParam() << "; see QUIRE_FIXTURES";
    auto model = models::LoadModel(weights::Open(path).value());
    ASSERT_TRUE(model) << model.error().message;
    model_ = std::move(*model);
    cache_ = cache::HybridCache::Create(model_->cache_layout(), {.bytes = 64 << 20}).value();
  }

  struct Part {
    cache::Sequence* sequence;
    std::vector<TokenId> tokens;
  };

  // One step with logits for every row.
  std::vector<float> Step(const std::vector<Part>& parts, ThreadPool& pool) {
    models::Batch batch{.tokens = {}, .row_begin = {0}, .logit_rows = {}};
    std::vector<cache::Append> appends;
    for (const Part& part : parts) {
      batch.tokens.insert(batch.tokens.end(), part.tokens.begin(), part.tokens.end());
      batch.row_begin.push_back(static_cast<int32_t>(batch.tokens.size()));
      appends.push_back({.sequence = part.sequence, .tokens = static_cast<int32_t>(part.tokens.size())});
    }
    for (int32_t row = 0; row < batch.row_begin.back(); ++row) batch.logit_rows.push_back(row);
    std::vector<float> logits(batch.tokens.size() * width());
    auto step = cache_->Begin(appends).value();
    model_->Forward(batch, *step, pool, logits);
    step->Commit();
    return logits;
  }

  size_t width() const { return static_cast<size_t>(model_->vocab_size()); }

  std::vector<TokenId> RandomTokens(size_t count) {
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random_() % width());
    return tokens;
  }

  std::unique_ptr<models::Model> model_;
  std::unique_ptr<cache::HybridCache> cache_;
  std::mt19937 random_{4711};
};

TEST_P(RaggedTest, AnyMixOfSequencesAndChunks) {
  ThreadPool one(1), three(3);
  const size_t lengths[] = {1, 90, 33, 64, 7};
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::vector<float>> alone, mixed(std::size(lengths));
  for (const size_t length : lengths) {
    prompts.push_back(RandomTokens(length));
    cache::Sequence sequence = cache_->NewSequence();
    alone.push_back(Step({{&sequence, prompts.back()}}, one));
  }
  std::vector<cache::Sequence> sequences;
  for (size_t i = 0; i < prompts.size(); ++i) sequences.push_back(cache_->NewSequence());
  std::vector<size_t> order = {0, 1, 2, 3, 4};
  while (true) {
    std::ranges::shuffle(order, random_);
    std::vector<Part> parts;
    std::vector<size_t> owners;
    for (const size_t i : order) {
      const auto from = static_cast<size_t>(sequences[i].offset());
      const size_t count = std::min<size_t>(prompts[i].size() - from, random_() % 12);
      if (count == 0) continue;
      const auto begin = prompts[i].begin() + static_cast<ptrdiff_t>(from);
      parts.push_back({&sequences[i], {begin, begin + static_cast<ptrdiff_t>(count)}});
      owners.push_back(i);
    }
    if (!parts.empty()) {
      const std::vector<float> logits = Step(parts, three);
      auto at = logits.begin();
      for (size_t p = 0; p < parts.size(); ++p) {
        const auto end = at + static_cast<ptrdiff_t>(parts[p].tokens.size() * width());
        mixed[owners[p]].insert(mixed[owners[p]].end(), at, end);
        at = end;
      }
    }
    if (std::ranges::all_of(order, [&](size_t i) { return mixed[i].size() == alone[i].size(); })) break;
  }
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(mixed[i], alone[i]) << "sequence " << i;
}

TEST_P(RaggedTest, AForkContinuesLikeItsSource) {
  ThreadPool pool(2);
  const std::vector<TokenId> prompt = RandomTokens(45), left = RandomTokens(20), right = RandomTokens(30);
  cache::Sequence source = cache_->NewSequence();
  Step({{&source, prompt}}, pool);
  cache::Sequence fork = cache_->Fork(source, source.offset()).value();
  const std::vector<float> together = Step({{&source, left}, {&fork, right}}, pool);

  for (const auto* tail : {&left, &right}) {
    cache::Sequence fresh = cache_->NewSequence();
    std::vector<TokenId> whole = prompt;
    whole.insert(whole.end(), tail->begin(), tail->end());
    const std::vector<float> logits = Step({{&fresh, whole}}, pool);
    const std::vector<float> expected(logits.begin() + static_cast<ptrdiff_t>(prompt.size() * width()),
                                      logits.end());
    const auto begin = together.begin() + static_cast<ptrdiff_t>(tail == &left ? 0 : left.size() * width());
    EXPECT_EQ(std::vector<float>(begin, begin + static_cast<ptrdiff_t>(expected.size())), expected);
  }
}

TEST_P(RaggedTest, APartlyAcceptedDraftGoesOnLikeItsPrefix) {
  ThreadPool pool(2);
  const std::vector<TokenId> prompt = RandomTokens(21), draft = RandomTokens(9), tail = RandomTokens(5);
  const auto replay = [&](size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens) {
    model_->Replay(layer, slot, inputs, tokens, pool);
  };
  for (const int32_t keep : {0, 1, 2, 5, 9}) {
    cache::Sequence sequence = cache_->NewSequence(), plain = cache_->NewSequence();
    Step({{&sequence, prompt}}, pool);
    {
      auto speculation = cache_->Speculate(sequence).value();
      Step({{&speculation.sequence(), {draft.begin(), draft.begin() + 4}}}, pool);
      Step({{&speculation.sequence(), {draft.begin() + 4, draft.end()}}}, pool);
      ASSERT_TRUE(speculation.Commit(keep, replay));
    }
    std::vector<TokenId> kept = prompt;
    kept.insert(kept.end(), draft.begin(), draft.begin() + keep);
    Step({{&plain, kept}}, pool);
    EXPECT_EQ(Step({{&sequence, tail}}, pool), Step({{&plain, tail}}, pool)) << "keeping " << keep;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RaggedTest,
                         testing::Values("models/lfm2", "gguf/lfm2.f16.gguf", "gguf/lfm2_k256.Q8_0.gguf",
                                         "models/qwen3_5", "models/lfm2_moe", "models/mistral",
                                         "models/qwen3_next", "models/gemma4_e", "models/gemma4_moe"));
INSTANTIATE_TEST_SUITE_P(Hybrids, RaggedTest,
                         testing::Values("models/falcon_h1", "models/granitemoehybrid", "models/jamba",
                                         "models/mamba2", "models/nemotron_h_moe"));
// Residuals of several streams, chosen keys, keys of blocks, n-grams.
INSTANTIATE_TEST_SUITE_P(Streams, RaggedTest,
                         testing::Values("models/deepseek_v4", "models/hy_v4", "models/qwen4_exp",
                                         "models/qwen4_exp_2ple"));

}  // namespace
}  // namespace quire::runner::golden
