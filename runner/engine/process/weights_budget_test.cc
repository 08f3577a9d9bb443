#include "runner/engine/process/weights_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runner/engine/process/memory_estimate.h"
#include "runner/engine/steps/cache_budget.h"
#include "runner/engine/testing/engine_harness.h"
#include "tests/data/test_data.h"

namespace quire::runner::engine {
namespace {

constexpr int64_t kNone = weights::kNoPanelLimit;
const Progress kNoProgress = [](float, std::string_view) {};

std::vector<float> Answer(const std::string& model, int64_t panels) {
  EngineHarness harness({.model = model, .model_stops = false, .panel_bytes_max = panels});
  return harness.Generate(Logged(Greedy("Rivers were roads once", 6))).logprobs();
}

// Files of every quantization type, where they are there.
TEST(StreamedWeights, OfEveryTypeGiveTheSameBits) {
  std::vector<std::string> models = {kDemoModel, "packaging/models/quire-demo-Q8_0.gguf"};
  for (const char* folder : {"gguf", "gguf_quant"}) {
    for (const std::filesystem::path& path : test_data::List(folder)) {
      if (path.extension() == ".gguf" && path.filename().string().find("assistant") == std::string::npos) {
        models.push_back(path.string());
      }
    }
  }
  for (const std::string& model : models) {
    SCOPED_TRACE(model);
    const std::vector<float> expected = Answer(model, kNone);
    ASSERT_EQ(6U, expected.size());
    EXPECT_EQ(expected, Answer(model, 0));
  }
}

class WeightsBudget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto opened = Open(GetParam(), kNoProgress, {});
    ASSERT_TRUE(opened) << opened.error().message;
    opened_ = *std::move(opened);
    whole_ = opened_.metadata_model->resident_bytes();
    least_ = ResidentWith(0);
    if (least_ >= whole_) GTEST_SKIP() << "a small model beside many threads: streaming saves nothing";
  }
  int64_t Choose(const WeightsRoom& room) const {
    const auto chosen = ChoosePanelBytes(opened_.loaded.files, {}, *opened_.metadata_model, {}, room);
    EXPECT_TRUE(chosen);
    return chosen.value_or(-1);
  }
  // The resident bytes of a load with this limit.
  int64_t ResidentWith(int64_t panels) const {
    const auto model = LoadMetadataModel(opened_.loaded.files, {.panel_bytes_max = panels});
    EXPECT_TRUE(model);
    return model ? (*model)->resident_bytes() : -1;
  }
  // Beside the weights.
  int64_t Rest() const {
    const CacheSizing caches = ChooseCacheSize(opened_.metadata_model->cache_layout(),
                                               opened_.metadata_model->context_length(), 0, 0);
    return ScratchBytes(*opened_.metadata_model, {}) + static_cast<int64_t>(caches.min_bytes);
  }

  OpenedModel opened_;
  int64_t whole_ = 0, least_ = 0;
};

TEST_P(WeightsBudget, LimitsNothingThatFits) {
  EXPECT_EQ(kNone, Choose({}));
  EXPECT_EQ(kNone, Choose({.available = whole_ + Rest()}));
  EXPECT_EQ(kNone, Choose({.requested = whole_, .available = whole_ + Rest()}));
  EXPECT_NE(kNone, Choose({.requested = whole_ - 1}));
  EXPECT_NE(kNone, Choose({.available = whole_ + Rest() - 1}));
}

TEST_P(WeightsBudget, KeepsWeightsWithinWhatIsRequested) {
  for (const int64_t requested : {least_, (least_ + whole_) / 2, whole_ - 1}) {
    EXPECT_LE(ResidentWith(Choose({.requested = requested})), requested);
  }
  EXPECT_EQ(0, Choose({.requested = 1})) << "the rest is in memory in any case";
}

TEST_P(WeightsBudget, LeavesRoomForCaches) {
  const int64_t available = whole_ / 2 + Rest();
  const int64_t panels = Choose({.available = available});
  ASSERT_NE(kNone, panels);
  if (panels > 0) {
    EXPECT_LE(ResidentWith(panels) + Rest(), available);
  }
  EXPECT_EQ(0, Choose({.available = 1}));
}

INSTANTIATE_TEST_SUITE_P(Models, WeightsBudget,
                         testing::Values(std::string(kDemoModel), "packaging/models/quire-demo-Q8_0.gguf"),
                         [](const auto& model) { return "Model" + std::to_string(model.index); });

TEST(StreamedWeights, ArePredicted) {
  for (const char* model :
       {kDemoModel, "packaging/models/quire-demo-Q8_0.gguf", "tests/data/models/lfm2_moe"}) {
    SCOPED_TRACE(model);
    const auto opened = Open(model, kNoProgress, {});
    ASSERT_TRUE(opened);
    EXPECT_EQ(0, opened->metadata_model->streamed_bytes());
    for (const int64_t panels : {int64_t{0}, opened->metadata_model->resident_bytes() / 3}) {
      const LoadOptions options{.panel_bytes_max = panels};
      const auto predicted = LoadMetadataModel(opened->loaded.files, options);
      const auto loaded = Load(model, kNoProgress, options);
      ASSERT_TRUE(predicted && loaded);
      EXPECT_EQ((*predicted)->resident_bytes(), loaded->model->resident_bytes());
      EXPECT_EQ((*predicted)->streamed_bytes(), loaded->model->streamed_bytes());
      EXPECT_GT(loaded->model->streamed_bytes(), 0);
    }
  }
}

}  // namespace
}  // namespace quire::runner::engine
