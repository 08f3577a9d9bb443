// Images in prompts, with a tower whose embeddings are a function of the pixels.

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "runner/engine/testing/engine_harness.h"

namespace quire::runner::engine {
namespace {

constexpr int32_t kImageTokens = 24;

// How often the tower was used.
struct Counts {
  std::atomic<int> images = 0, slices = 0;
};

class SinePass : public models::VisionPass {
 public:
  SinePass(std::vector<const images::Tile*> tiles, int32_t hidden)
      : tiles_(std::move(tiles)), hidden_(hidden) {}
  bool done() const override { return slices_left_ == 0; }
  std::span<const float> embeddings() override { return rows_; }
  void Advance() {
    if (--slices_left_ > 0) return;
    for (const images::Tile* tile : tiles_) {
      for (int32_t row = 0; row < tile->tokens; ++row) {
        for (int32_t i = 0; i < hidden_; ++i)
          rows_.push_back(0.1F * std::sin(tile->patches[0] * 7 + static_cast<float>(row * 31 + i)));
      }
    }
  }

 private:
  std::vector<const images::Tile*> tiles_;
  int32_t hidden_;
  int slices_left_ = 3;
  std::vector<float> rows_;
};

class SineTower : public models::VisionTower {
 public:
  SineTower(int32_t hidden, Counts& counts) : hidden_(hidden), counts_(counts) {}
  int32_t hidden_size() const override { return hidden_; }
  int64_t parameters() const override { return 0; }
  int64_t weight_bytes() const override { return 0; }
  int64_t resident_bytes() const override { return 0; }
  int64_t pass_bytes(int64_t) const override { return 0; }
  int64_t scratch_bytes(int64_t) const override { return 0; }
  bool Takes(const images::Tile&, size_t) const override { return true; }
  int32_t KeysOfNext(const models::VisionPass&) const override { return 0; }
  std::unique_ptr<models::VisionPass> Start(std::span<const images::Tile* const> tiles) const override {
    counts_.images += static_cast<int>(tiles.size());
    return std::make_unique<SinePass>(std::vector(tiles.begin(), tiles.end()), hidden_);
  }
  void Advance(models::VisionPass& pass, ThreadPool&, int64_t) override {
    ++counts_.slices;
    static_cast<SinePass&>(pass).Advance();
  }
  void Forward(models::VisionPass&, ThreadPool&, models::ActivationHook*) override {}

 private:
  int32_t hidden_;
  Counts& counts_;
};

SharedImage ImageOf(int seed) {
  images::PreparedImage image;
  image.tiles.push_back(
      {.rows = 4, .columns = 6, .patches = {static_cast<float>(seed)}, .tokens = kImageTokens});
  image.digest[0] = static_cast<uint8_t>(seed);
  return std::make_shared<const PackedImage>(std::move(image));
}

// An engine that sees images, and prompts in which they stand behind the first token.
class ImageEngine {
 public:
  explicit ImageEngine(EngineLimits limits = {.cache_bytes = kPlenty, .check_invariants_every = 1})
      : harness_({.limits = limits,
                  .tower = [this](int32_t hidden) { return std::make_unique<SineTower>(hidden, counts_); }}) {
  }

  api::RequestId Submit(const std::vector<int>& seeds, const std::string& question, int32_t tokens = 16) {
    api::Request request = Logged(Greedy(question, tokens));
    auto prompt = harness_.Build(request);
    std::vector<api::TokenId> rows;
    for (const int seed : seeds) {
      const auto begin = static_cast<int32_t>(1 + rows.size());
      for (int32_t row = 0; row < kImageTokens; ++row) rows.push_back(-(seed * 1000 + row + 1));
      prompt->images.push_back({.image = ImageOf(seed), .begin = begin, .count = kImageTokens, .first = 0});
    }
    prompt->tokens.insert(prompt->tokens.begin() + 1, rows.begin(), rows.end());
    for (int32_t& boundary : prompt->boundaries) boundary += static_cast<int32_t>(rows.size());
    return harness_.SubmitBuilt(std::move(request), std::move(prompt));
  }
  Outcome AnswerTo(const std::vector<int>& seeds, const std::string& question, int32_t tokens = 16) {
    return harness_.Wait(Submit(seeds, question, tokens));
  }
  EngineHarness& harness() { return harness_; }
  int images() const { return counts_.images; }
  int slices() const { return counts_.slices; }

 private:
  Counts counts_;
  EngineHarness harness_;
};

TEST(EngineImages, TheRowsOfAnImageChangeTheAnswer) {
  ImageEngine engine;
  const auto one = engine.AnswerTo({1}, "What is it?"), other = engine.AnswerTo({2}, "What is it?");
  EXPECT_NE(one.logprobs(), other.logprobs());
  EXPECT_EQ(engine.images(), 2);
  EXPECT_EQ(one.finished->usage.prompt_tokens, other.finished->usage.prompt_tokens);
}

TEST(EngineImages, ASecondTurnComputesNothingOfAnImage) {
  ImageEngine engine;
  const auto first = engine.AnswerTo({1}, "What is it?");
  const auto again = engine.AnswerTo({1}, "What is it?");
  EXPECT_GT(again.ready->cached_tokens, kImageTokens);
  EXPECT_EQ(engine.images(), 1);
  EXPECT_EQ(again.logprobs(), first.logprobs());
}

TEST(EngineImages, AnotherImageIsNeverAnsweredFromThePrefixOfTheFirst) {
  ImageEngine engine, alone;
  engine.AnswerTo({1}, "What is it?");
  const auto other = engine.AnswerTo({2}, "What is it?");
  EXPECT_LE(other.ready->cached_tokens, 1);
  EXPECT_EQ(other.logprobs(), alone.AnswerTo({2}, "What is it?").logprobs());
}

TEST(EngineImages, ThePrefixOfOneImageServesAPromptWithTwo) {
  ImageEngine engine, alone;
  engine.AnswerTo({1}, "What is it?");
  const auto both = engine.AnswerTo({1, 2}, "And this?");
  EXPECT_EQ(both.logprobs(), alone.AnswerTo({1, 2}, "And this?").logprobs());
}

TEST(EngineImages, ChunksOfAnySizeGiveTheSameBits) {
  ImageEngine whole;
  const auto expected = whole.AnswerTo({3, 4}, "What are they?");
  for (const int32_t chunk : {1, 5, 31}) {
    ImageEngine cut({.prefill_tokens = chunk, .cache_bytes = kPlenty});
    EXPECT_EQ(cut.AnswerTo({3, 4}, "What are they?").logprobs(), expected.logprobs()) << chunk;
  }
}

TEST(EngineImages, RequestsAtOnceGiveTheSameBitsAndShareAnImage) {
  ImageEngine alone, together;
  std::vector<api::RequestId> ids;
  const std::vector<std::vector<int>> seeds = {{1}, {2}, {1, 2}, {}, {1}};
  for (size_t i = 0; i < seeds.size(); ++i)
    ids.push_back(together.Submit(seeds[i], "Question " + std::to_string(i)));
  for (size_t i = 0; i < seeds.size(); ++i) {
    const auto expected = alone.AnswerTo(seeds[i], "Question " + std::to_string(i));
    EXPECT_EQ(together.harness().Wait(ids[i]).logprobs(), expected.logprobs()) << i;
  }
  EXPECT_EQ(together.images(), 2);
}

TEST(EngineImages, APreemptedRequestGoesOnWithTheSameBits) {
  ImageEngine roomy;
  const auto expected = roomy.AnswerTo({1, 2}, "What are they?", 60);
  const auto bytes = roomy.harness().SequenceBytesOf(260);
  ImageEngine tight({.cache_bytes = bytes, .check_invariants_every = 1});
  std::vector<api::RequestId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(tight.Submit({1, 2}, "What are they?", 60));
  for (const api::RequestId id : ids) EXPECT_EQ(tight.harness().Wait(id).logprobs(), expected.logprobs());
}

TEST(EngineImages, AStreamGoesOnWhileAnImageIsEncoded) {
  ImageEngine engine;
  const auto stream = engine.Submit({}, "Tell me a long story.", 200);
  engine.harness().WaitUntil(stream, [](const Outcome& outcome) { return !outcome.deltas.empty(); });
  EXPECT_TRUE(engine.AnswerTo({5}, "What is it?", 4).finished);
  EXPECT_EQ(engine.slices(), 3);
  EXPECT_TRUE(engine.harness().Wait(stream).finished);
}

TEST(EngineImages, ACanceledRequestLeavesNothing) {
  ImageEngine engine;
  const auto id = engine.Submit({7}, "What is it?", 100);
  engine.harness().Post(api::ipc::Cancel{id});
  EXPECT_TRUE(engine.AnswerTo({8}, "What is it?").finished);
  EXPECT_TRUE(engine.harness().Stopped().CheckInvariants().has_value());
}

TEST(PackedImage, GivesEveryBitOfItsPatchesBack) {
  for (const int values : {3, 256, 700, 70'000}) {
    images::PreparedImage image;
    image.tiles.push_back({.rows = 1, .columns = 1, .patches = {}, .tokens = 1});
    for (int i = 0; i < 100'000; ++i)
      image.tiles[0].patches.push_back(std::sin(static_cast<float>(i * 7919 % values)) / 3);
    const std::vector<float> patches = image.tiles[0].patches;
    const PackedImage packed(std::move(image));
    EXPECT_TRUE(packed.tiles[0].patches.empty());
    EXPECT_EQ(packed.Unpack()[0].patches, patches);
    EXPECT_LE(packed.packed_bytes(), values <= 256 ? 102'000 : values <= 700 ? 204'000 : 400'000);
  }
}

TEST(RopePositions, RowsOfAnImageStandInAGrid) {
  const std::vector<ImageSpan> spans = {
      {.image = nullptr, .begin = 2, .count = 6, .first = 0, .grid_rows = 2, .grid_columns = 3}};
  std::array<std::vector<int64_t>, 3> at;
  AppendRopePositions(spans, 0, 11, at);
  EXPECT_EQ(at[0], (std::vector<int64_t>{0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7}));
  EXPECT_EQ(at[1], (std::vector<int64_t>{0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7}));
  EXPECT_EQ(at[2], (std::vector<int64_t>{0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7}));
  std::array<std::vector<int64_t>, 3> behind;
  AppendRopePositions(spans, 5, 4, behind);
  EXPECT_EQ(behind[1], (std::vector<int64_t>{3, 3, 3, 5}));
}

}  // namespace
}  // namespace quire::runner::engine
