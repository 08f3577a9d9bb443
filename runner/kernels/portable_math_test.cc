#include "runner/kernels/portable_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "runner/kernels/testing/instruction_sets.h"

namespace quire::runner::kernels {
namespace {

// Within `units` of the last place of a float32, given the truth in float64.
void ExpectNear(double truth, float got, double units, float x) {
  const auto nearest = static_cast<float>(truth);
  const float above = std::nextafterf(std::abs(nearest), std::numeric_limits<float>::infinity());
  const double unit = static_cast<double>(above) - static_cast<double>(std::abs(nearest));
  EXPECT_LE(std::abs(static_cast<double>(got) - truth), units * unit) << x << " gave " << got;
}

TEST(PortableMath, RoundsToTheNearestFloat) {
  test::Random random(1);
  for (int i = 0; i < 20'000; ++i) {
    const float x = random.Float() * (i % 2 == 0 ? 1.0F : 80.0F);
    const auto exact = static_cast<double>(x);
    ExpectNear(std::exp(exact), Exp(x), 0.500001, x);
    ExpectNear(x > 20 ? exact : std::log1p(std::exp(exact)), Softplus(x), 0.500001, x);
    ExpectNear(std::tanh(exact), Tanh(x), 0.501, x);
    ExpectNear(1 / (1 + std::exp(-exact)), Sigmoid(x), 2, x);
  }
}

TEST(PortableMath, EndsOfTheRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(1.0F, Exp(0));
  EXPECT_EQ(0.0F, Exp(-infinity));
  EXPECT_EQ(0.0F, Exp(-104));
  EXPECT_EQ(std::numeric_limits<float>::denorm_min(), Exp(-103.2F));
  EXPECT_EQ(infinity, Exp(89));
  EXPECT_EQ(infinity, Exp(infinity));
  EXPECT_EQ(21.0F, Softplus(21));
  EXPECT_EQ(0.0F, Softplus(-infinity));
  EXPECT_EQ(1.0F, Sigmoid(infinity));
  EXPECT_EQ(0.0F, Sigmoid(-infinity));
  EXPECT_EQ(1.0F, Tanh(infinity));
  EXPECT_EQ(-1.0F, Tanh(-11));
  const float none = std::numeric_limits<float>::quiet_NaN();
  for (const float value : {Exp(none), Softplus(none), Sigmoid(none), Tanh(none)})
    EXPECT_TRUE(std::isnan(value));
}

TEST(PortableMath, AnglesOfLongContexts) {
  test::Random random(2);
  for (int i = 0; i < 20'000; ++i) {
    const double angle = static_cast<double>(random.Float()) * (i % 2 == 0 ? 8 : 1'048'000);
    const SineCosine of = SineAndCosine(angle);
    EXPECT_NEAR(std::sin(angle), of.sine, 4e-16) << angle;
    EXPECT_NEAR(std::cos(angle), of.cosine, 4e-16) << angle;
  }
  EXPECT_EQ(0.0, SineAndCosine(0).sine);
  EXPECT_EQ(1.0, SineAndCosine(0).cosine);
  EXPECT_EQ(std::sin(3e6), SineAndCosine(3e6).sine);
}

// Recorded numbers: equal on every CPU and with every C library.
TEST(PortableMath, HasTheBitsOfEveryOtherMachine) {
  uint64_t hash = 1469598103934665603ULL;
  const auto add = [&](uint64_t bits) { hash = (hash ^ bits) * 1099511628211ULL; };
  test::Random random(3);
  for (int i = 0; i < 5'000; ++i) {
    const float x = random.Float() * 30;
    for (const float value : {Exp(x), Softplus(x), Sigmoid(x), Tanh(x)}) add(std::bit_cast<uint32_t>(value));
    const SineCosine of = SineAndCosine(static_cast<double>(x) * 1000);
    add(std::bit_cast<uint64_t>(of.sine));
    add(std::bit_cast<uint64_t>(of.cosine));
  }
  EXPECT_EQ(18'266'207'709'793'805'762ULL, hash);
}

}  // namespace
}  // namespace quire::runner::kernels
