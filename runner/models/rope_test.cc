// The stretched rotary frequencies. Expected values were computed with the published formulas in another
// language.
#include "runner/models/rope.h"

#include <gtest/gtest.h>

#include <cmath>

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

}  // namespace
}  // namespace quire::runner::models
