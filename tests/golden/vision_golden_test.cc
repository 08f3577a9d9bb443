// Text models behind what a reference's vision tower made of images.
#include "tests/golden/vision_golden.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runner/kernels/int8_gemm.h"
#include "tests/data/test_data.h"
#include "tests/golden/compare.h"
#include "tests/golden/golden_run.h"
#include "tests/golden/vision_stages.h"

namespace quire::runner::golden {
namespace {

namespace fs = std::filesystem;

// Directories; a GGUF file of the text model may be in it.
class VisionTextTest : public testing::TestWithParam<const char*> {};

// Logits are of order 10. Measured: 3e-5.
TEST_P(VisionTextTest, ComputesWhatItsReferenceComputed) {
  QUIRE_FIND_OR_SKIP(directory, fs::path("vision") / GetParam());
  ASSERT_TRUE(IsVisionGolden(directory));
  const auto golden = ReadVisionGolden(directory);
  ASSERT_TRUE(golden) << golden.error().message;
  std::vector<fs::path> models = {directory};
  const fs::path gguf = directory / (std::string(GetParam()) + ".f16.gguf");
  if (fs::exists(gguf)) models.push_back(gguf);
  for (const fs::path& model : models) {
    SCOPED_TRACE(model);
    ThreadPool pool(2);
    auto run = GoldenRun::Open(model, pool, 1, 256);
    ASSERT_TRUE(run) << run.error().message;
    ASSERT_EQ(run->model().vocab_size(), golden->text.vocab);
    const Comparison result =
        Compare(*run, golden->text, {.tolerance = 2e-4F, .chunks = {1, 7, 64}, .restore_every_offset = true});
    EXPECT_TRUE(result.pass(2e-4F)) << result.Verdict(2e-4F) << "\n" << testing::PrintToString(result.lines);
  }
}

// From the pictures on.
TEST_P(VisionTextTest, MakesOfPicturesWhatItsReferenceMade) {
  QUIRE_FIND_OR_SKIP(directory, fs::path("vision") / GetParam());
  auto golden = ReadVisionGolden(directory);
  ASSERT_TRUE(golden) << golden.error().message;
  kernels::LimitPanelTarget(kernels::PanelTarget::kNone);
  ThreadPool pool(2);
  auto parts = OpenVision(directory, {}, {});
  ASSERT_TRUE(parts) << parts.error().message;
  ASSERT_NE(parts->tower, nullptr);
  const auto stages = RunVisionStages(*parts, directory, *golden, 2e-4F, pool);
  ASSERT_TRUE(stages) << stages.error().message;
  EXPECT_TRUE(stages->pass) << testing::PrintToString(stages->lines);
  ASSERT_EQ(stages->text.prompts.size(), golden->text.prompts.size());
  auto run = GoldenRun::Open(directory, pool, 1, 256);
  ASSERT_TRUE(run) << run.error().message;
  const Comparison result = Compare(*run, stages->text, {.tolerance = 5e-4F});
  kernels::LimitPanelTarget(kernels::kNoPanelLimit);
  EXPECT_TRUE(result.pass(5e-4F)) << result.Verdict(5e-4F) << "\n" << testing::PrintToString(result.lines);
}

// Beside each other, beside text alone, and with every type of keys and values.
TEST_P(VisionTextTest, BitsDoNotDependOnTheBatch) {
  QUIRE_FIND_OR_SKIP(directory, fs::path("vision") / GetParam());
  auto golden = ReadVisionGolden(directory);
  ASSERT_TRUE(golden) << golden.error().message;
  GoldenPrompt text;
  text.ids.assign(golden->text.prompts[0].ids.begin(), golden->text.prompts[0].ids.begin() + 5);
  text.logit_rows = {0, 4};
  golden->text.prompts.insert(golden->text.prompts.begin() + 1, text);
  golden->text.prompts.push_back(text);
  for (const api::KvType type : {api::KvType::kF32, api::KvType::kF16, api::KvType::kI16}) {
    ThreadPool pool(2);
    auto run = GoldenRun::Open(directory, pool, static_cast<int32_t>(golden->text.prompts.size()), 256, type);
    ASSERT_TRUE(run) << run.error().message;
    std::vector<float> alone;
    for (const GoldenPrompt& prompt : golden->text.prompts) {
      run->SetImages(prompt.images.rows.empty() ? nullptr : &prompt.images);
      const PromptRun one = run->RunPrompt(prompt.ids, prompt.logit_rows, 3, 0);
      EXPECT_EQ(run->RunPrompt(prompt.ids, prompt.logit_rows, 3, 7), one);
      alone.insert(alone.end(), one.logits.begin(), one.logits.end());
    }
    EXPECT_EQ(run->RunTogether(golden->text.prompts), alone);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, VisionTextTest, testing::Values("gemma3_vl", "lfm2_vl", "qwen3_vl"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace quire::runner::golden
