// Weights that stay in their file, of families with experts or latent attention.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runner/models/testing/moe_models.h"
#include "runner/weights/quantize_on_load.h"

namespace quire::runner::models {
namespace {

using test::LastLogits;
using test::MoeModel;
using test::PatchedModelFiles;

// In floats, or with the matrices of linear layers in Q8_0; `panels`: bytes of memory for panels.
std::unique_ptr<Model> LoadLimited(const MoeModel& family, bool quantized, int64_t panels) {
  auto patched = std::make_shared<PatchedModelFiles>(test::kMoeBase);
  family.make(*patched);
  std::shared_ptr<const weights::ModelFiles> files = std::move(patched);
  if (quantized) {
    auto made = weights::QuantizeOnLoad(std::move(files), "Q8_0", 1);
    if (!made) return nullptr;
    files = *std::move(made);
  }
  auto model = LoadModel(weights::LimitPanels(std::move(files), panels));
  return model ? *std::move(model) : nullptr;
}

bool StoresExpertsTransposed(const MoeModel& family) {
  return family.make == test::MakeGptOss || family.make == test::MakeLlama4;
}

class LimitedFamily : public testing::TestWithParam<MoeModel> {};

// Int8 experts read rows by their number, and experts of one product may have panels or be streamed.
TEST_P(LimitedFamily, HasTheBitsOfWeightsInMemory) {
  for (const bool quantized : {false, true}) {
    if (quantized && StoresExpertsTransposed(GetParam())) continue;  // refused: across their inputs
    SCOPED_TRACE(quantized ? "Q8_0" : "F32");
    const auto whole = LoadLimited(GetParam(), quantized, weights::kNoPanelLimit);
    ASSERT_TRUE(whole);
    EXPECT_EQ(0, whole->streamed_bytes());
    const std::vector<float> expected = LastLogits(*whole);
    for (const float logit : expected) ASSERT_TRUE(std::isfinite(logit));
    for (const int64_t share : {0, 50, 90}) {
      const auto limited = LoadLimited(GetParam(), quantized, whole->resident_bytes() * share / 100);
      ASSERT_TRUE(limited);
      if (share == 0) {
        EXPECT_GT(limited->streamed_bytes(), 0);
      }
      for (int pass = 0; pass < 5; ++pass) EXPECT_EQ(expected, LastLogits(*limited)) << share << ", " << pass;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LimitedFamily, testing::ValuesIn(test::kMoeModels),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace quire::runner::models
