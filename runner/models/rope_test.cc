// The stretched rotary frequencies. Expected values were computed with the published formulas in another
// language.
#include "runner/models/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/models/config_reader.h"
#include "runner/models/testing/patched_model_files.h"

namespace quire::runner::models {
namespace {

TEST(Llama3Frequencies, KeepShortWavesStretchLongOnesAndBlendBetween) {
  const Llama3Scaling scaling{
      .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 64};
  const std::vector<float> f = Llama3Frequencies(500000, 16, scaling);
  ASSERT_EQ(f.size(), 8U);
  EXPECT_FLOAT_EQ(f[0], 1.0F);  // a wave of 6.3 tokens
  EXPECT_FLOAT_EQ(f[7], static_cast<float>(std::pow(500000.0, -14.0 / 16) / 8));
  const double second = std::pow(500000.0, -2.0 / 16), wave = 2 * M_PI / second;
  ASSERT_GT(wave, 64.0 / 4);
  ASSERT_LT(wave, 64.0);
  const double smooth = (64 / wave - 1) / 3;
  EXPECT_FLOAT_EQ(f[1], static_cast<float>((1 - smooth) * second / 8 + smooth * second));
}

TEST(YarnFrequencies, RampBetweenKeptAndStretched) {
  const std::vector<float> f =
      YarnFrequencies(10000, 64, {.factor = 4, .original_context = 4096, .beta_fast = 32, .beta_slow = 1});
  ASSERT_EQ(f.size(), 32U);
  // The ramp runs from dimension floor(10.46) = 10 to ceil(22.51) = 23.
  for (size_t i = 0; i < f.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - 10) / 13, 0.0, 1.0);
    const double plain = std::pow(10000.0, -static_cast<double>(i) / 32);
    EXPECT_FLOAT_EQ(f[i], static_cast<float>(plain * (1 - ramp) + plain / 4 * ramp)) << i;
  }
}

using Axes = std::vector<uint8_t>;

RopeSpec ReadSections(RopeSections sections, const test::Json& said, ConfigReader** reader = nullptr) {
  static std::unique_ptr<test::PatchedModelFiles> files;
  static std::unique_ptr<ConfigReader> read;
  files = std::make_unique<test::PatchedModelFiles>("tests/data/models/qwen3");
  if (!said.is_null()) files->json["rope_parameters"]["mrope_section"] = said;
  read = std::make_unique<ConfigReader>(*files);
  if (reader != nullptr) *reader = read.get();
  return ReadRope(*read, {.head_dim = 16, .sections = sections, .given_sections = {2, 3, 3}});
}

TEST(RopeSections, FollowEachOtherOrTakeTurns) {
  EXPECT_EQ(ReadSections(RopeSections::kNone, {4, 2, 2}).axes, Axes());
  EXPECT_EQ(ReadSections(RopeSections::kContiguous, {}).axes, (Axes{0, 0, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(ReadSections(RopeSections::kContiguous, {4, 0, 4}).axes, (Axes{0, 0, 0, 0, 2, 2, 2, 2}));
  EXPECT_EQ(ReadSections(RopeSections::kInterleaved, {}).axes, (Axes{0, 1, 2, 0, 1, 2, 0, 1}));
  EXPECT_EQ(ReadSections(RopeSections::kInterleaved, {4, 2, 1}).axes, (Axes{0, 1, 2, 0, 1, 0, 0, 0}));
}

TEST(RopeSections, ThatDoNotShareAHeadAreErrors) {
  const test::Json bad[] = {{4, 2, 3}, {9, -1, 0}, {4, 4}, {4, 2, "2"}, 8, {int64_t{1} << 62, 1, 1}};
  for (const test::Json& said : bad) {
    ConfigReader* read = nullptr;
    ReadSections(RopeSections::kContiguous, said, &read);
    ASSERT_TRUE(read->error()) << said;
    EXPECT_NE(read->error()->message.find("mrope_section"), std::string::npos) << read->error()->message;
  }
}

}  // namespace
}  // namespace quire::runner::models
