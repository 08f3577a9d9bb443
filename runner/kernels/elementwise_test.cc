#include "runner/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "runner/kernels/testing/instruction_sets.h"

namespace quire::runner::kernels {
namespace {

using test::ForEachInstructionSet;
using test::Random;

constexpr size_t kSizes[] = {1, 7, 16, 33, 64, 250};

TEST(RmsNorm, AgreesWithTheFormulaAndTreatsRowsAlone) {
  ThreadPool pool(3);
  ForEachInstructionSet([&] {
    for (const size_t size : kSizes) {
      constexpr size_t kRows = 211;
      Random random(static_cast<uint32_t>(size));
      const std::vector<float> x = random.Floats(kRows * size), weight = random.Floats(size);
      std::vector<float> y(x.size());
      RmsNorm(pool, x, weight, 1e-5F, y);
      for (size_t row = 0; row < kRows; ++row) {
        double squares = 0;
        for (size_t i = 0; i < size; ++i) squares += std::pow(x[row * size + i], 2);
        const double factor = 1 / std::sqrt(squares / static_cast<double>(size) + 1e-5);
        for (size_t i = 0; i < size; ++i) {
          const double expected = x[row * size + i] * factor * weight[i];
          ASSERT_NEAR(y[row * size + i], expected, 1e-6 * std::abs(expected) + 1e-7) << "size " << size;
        }
      }
      std::vector<float> alone(x.begin() + static_cast<ptrdiff_t>(5 * size),
                               x.begin() + static_cast<ptrdiff_t>(6 * size));
      RmsNorm(pool, alone, weight, 1e-5F, alone);  // in place
      EXPECT_EQ(alone, std::vector<float>(y.begin() + static_cast<ptrdiff_t>(5 * size),
                                          y.begin() + static_cast<ptrdiff_t>(6 * size)));
    }
  });
}

TEST(LayerNorm, AgreesWithTheFormulaAndTreatsRowsAlone) {
  ThreadPool pool(3);
  ForEachInstructionSet([&] {
    for (const size_t size : kSizes) {
      constexpr size_t kRows = 101;
      Random random(static_cast<uint32_t>(size));
      const std::vector<float> x = random.Floats(kRows * size), weight = random.Floats(size),
                               bias = random.Floats(size);
      std::vector<float> y(x.size()), plain(x.size());
      LayerNorm(pool, x, weight, bias, 1e-5F, y);
      LayerNorm(pool, x, weight, {}, 1e-5F, plain);
      for (size_t row = 0; row < kRows; ++row) {
        const auto begin = x.begin() + static_cast<ptrdiff_t>(row * size);
        double mean = 0, variance = 0;
        for (size_t i = 0; i < size; ++i) mean += begin[static_cast<ptrdiff_t>(i)];
        mean /= static_cast<double>(size);
        for (size_t i = 0; i < size; ++i) variance += std::pow(begin[static_cast<ptrdiff_t>(i)] - mean, 2);
        const double factor = 1 / std::sqrt(variance / static_cast<double>(size) + 1e-5);
        for (size_t i = 0; i < size; ++i) {
          const double expected = (x[row * size + i] - mean) * factor * weight[i];
          ASSERT_NEAR(plain[row * size + i], expected, 4e-6) << "size " << size;
          ASSERT_EQ(y[row * size + i], plain[row * size + i] + bias[i]);
        }
        std::vector<float> alone(begin, begin + static_cast<ptrdiff_t>(size));
        LayerNorm(pool, alone, weight, bias, 1e-5F, alone);  // in place
        for (size_t i = 0; i < size; ++i) ASSERT_EQ(alone[i], y[row * size + i]);
      }
    }
  });
}

TEST(SiluMul, AgreesWithTheFormulaWhereverAnElementStands) {
  ThreadPool pool(2);
  ForEachInstructionSet([&] {
    Random random(5);
    std::vector<float> gate = random.Floats(40'003);
    const std::vector<float> up = random.Floats(gate.size());
    for (float& g : gate) g *= 20;
    gate[0] = -1000;
    gate[1] = 1000;
    gate[2] = 0;
    const std::vector<float> before = gate;
    SiluMul(pool, up, gate);
    for (size_t i = 0; i < gate.size(); ++i) {
      const double g = before[i], expected = g / (1 + std::exp(-g)) * up[i];
      ASSERT_NEAR(gate[i], expected, 2e-6 * std::abs(expected) + 1e-30) << "silu(" << g << ")";
    }
    std::vector<float> alone = {before[40'002]};
    SiluMul(pool, std::vector<float>{up[40'002]}, alone);
    EXPECT_EQ(alone[0], gate[40'002]);
  });
}

TEST(Add, AddsElementsAndBiases) {
  ThreadPool pool(2);
  ForEachInstructionSet([&] {
    Random random(6);
    const std::vector<float> x = random.Floats(50'001), y = random.Floats(50'001);
    std::vector<float> sum = y;
    Add(pool, x, sum);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(sum[i], y[i] + x[i]);
    std::vector<float> rows = {1, 2, 3, 10, 20, 30};
    AddBias(std::vector<float>{0.5F, 0.25F, -1}, rows);
    EXPECT_EQ(rows, (std::vector<float>{1.5F, 2.25F, 2, 10.5F, 20.25F, 29}));
  });
}

TEST(RopeTable, AnAngleFollowsItsAxis) {
  ThreadPool pool(2);
  const std::vector<int64_t> time = {3, 4, 70'000}, height = {3, 9, 1}, width = {3, 2, 5};
  const std::vector<float> frequencies = {1, 0.3F, 0.01F, 0.7F};
  const std::vector<uint8_t> axes = {0, 1, 2, 1};
  std::vector<float> cos(12), sin(12), one_cos(12), one_sin(12);
  RopeTable(pool, {time, height, width}, axes, frequencies, cos, sin, 1.25F);
  const std::vector<int64_t>* const positions[] = {&time, &height, &width};
  for (uint8_t axis = 0; axis < 3; ++axis) {
    RopeTable(pool, *positions[axis], frequencies, one_cos, one_sin, 1.25F);
    for (size_t i = 0; i < cos.size(); ++i) {
      if (axes[i % axes.size()] != axis) continue;
      EXPECT_EQ(cos[i], one_cos[i]) << i;
      EXPECT_EQ(sin[i], one_sin[i]) << i;
    }
  }
}

TEST(Rope, TurnsPairsAndPassesTheRest) {
  ThreadPool pool(2);
  ForEachInstructionSet([&] {
    for (const size_t n : {1U, 5U, 8U, 32U, 35U}) {
      for (const size_t dim : {2 * n, 2 * n + 3}) {
        constexpr size_t kHeads = 3;
        const std::vector<int64_t> positions = {0, 1, 77, 4095, 1'000'000};
        Random random(static_cast<uint32_t>(dim));
        std::vector<float> frequencies(n), cos(positions.size() * n), sin(cos.size());
        for (size_t i = 0; i < n; ++i) {
          frequencies[i] =
              static_cast<float>(std::pow(1e4, -static_cast<double>(i) / static_cast<double>(n)));
        }
        RopeTable(pool, positions, frequencies, cos, sin);
        const std::vector<float> before = random.Floats(positions.size() * kHeads * dim);
        std::vector<float> x = before;
        Rope(pool, cos, sin, static_cast<int64_t>(n), static_cast<int64_t>(dim),
             static_cast<int64_t>(positions.size()), x);
        for (size_t head = 0; head < positions.size() * kHeads; ++head) {
          const float* from = before.data() + head * dim;
          const float* to = x.data() + head * dim;
          for (size_t i = 0; i < n; ++i) {
            const double angle = static_cast<float>(positions[head / kHeads]) * frequencies[i];
            ASSERT_NEAR(to[i], from[i] * std::cos(angle) - from[i + n] * std::sin(angle), 3e-7);
            ASSERT_NEAR(to[i + n], from[i + n] * std::cos(angle) + from[i] * std::sin(angle), 3e-7);
          }
          for (size_t i = 2 * n; i < dim; ++i) ASSERT_EQ(to[i], from[i]);
        }
      }
    }
  });
}

TEST(Rope, AdjacentPairsEndUpAsHalves) {
  ThreadPool pool(2);
  constexpr size_t kFrequencies = 5, kDim = 13, kRows = 3, kHeads = 2;
  Random random(3);
  std::vector<float> cos = random.Floats(kRows * kFrequencies), sin = random.Floats(cos.size());
  std::vector<float> halves = random.Floats(kRows * kHeads * kDim), adjacent = halves;
  for (size_t head = 0; head < adjacent.size(); head += kDim) {
    for (size_t i = 0; i < kFrequencies; ++i) {
      adjacent[head + 2 * i] = halves[head + i];
      adjacent[head + 2 * i + 1] = halves[head + kFrequencies + i];
    }
  }
  Rope(pool, cos, sin, kFrequencies, kDim, kRows, halves);
  Rope(pool, cos, sin, kFrequencies, kDim, kRows, adjacent, RopePairs::kAdjacent);
  EXPECT_EQ(adjacent, halves);
}

TEST(Rope, InterleavedPairsStayWhereTheyAre) {
  ThreadPool pool(2);
  constexpr size_t kFrequencies = 5, kDim = 13, kRows = 3, kHeads = 2;
  Random random(3);
  std::vector<float> cos = random.Floats(kRows * kFrequencies), sin = random.Floats(cos.size());
  std::vector<float> interleaved = random.Floats(kRows * kHeads * kDim), halves = interleaved;
  Rope(pool, cos, sin, kFrequencies, kDim, kRows, halves, RopePairs::kAdjacent);
  Rope(pool, cos, sin, kFrequencies, kDim, kRows, interleaved, RopePairs::kInterleaved);
  for (size_t head = 0; head < halves.size(); head += kDim) {
    for (size_t i = 0; i < kFrequencies; ++i) {
      EXPECT_EQ(interleaved[head + 2 * i], halves[head + i]);
      EXPECT_EQ(interleaved[head + 2 * i + 1], halves[head + kFrequencies + i]);
    }
    for (size_t i = 2 * kFrequencies; i < kDim; ++i) EXPECT_EQ(interleaved[head + i], halves[head + i]);
  }
}

TEST(Activations, AgreeWithTheirFormulas) {
  ThreadPool pool(2);
  ForEachInstructionSet([&] {
    Random random(8);
    std::vector<float> x = random.Floats(20'003), up = random.Floats(x.size());
    for (float& v : x) v *= 12;
    x[0] = -1000;
    x[1] = 1000;
    std::vector<float> gelu = x, gated = up, capped = x, scaled = x, plain = x, squared = x, xielu = x,
                       silu = x, product = x;
    GeluMul(pool, up, gelu);
    SigmoidMul(pool, x, gated);
    SoftCap(pool, 3, capped);
    Scale(pool, 0.75F, scaled);
    Gelu(pool, plain);
    SquaredRelu(pool, squared);
    Silu(pool, silu);
    Mul(pool, up, product);
    Xielu(pool, {.positive = 0.8F, .negative = 1.25F, .beta = 0.5F, .eps = -1e-6F}, xielu);
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = x[i], c = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
      ASSERT_NEAR(gelu[i], v / 2 * (1 + std::tanh(c)) * up[i], 4e-6 * std::abs(v * up[i]) + 1e-30) << v;
      ASSERT_NEAR(gated[i], up[i] / (1 + std::exp(-v)), 1e-6) << v;
      ASSERT_NEAR(capped[i], 3 * std::tanh(v / 3), 2e-6) << v;
      ASSERT_EQ(scaled[i], 0.75F * x[i]);
      ASSERT_NEAR(plain[i], v / 2 * (1 + std::tanh(c)), 4e-6 * std::abs(v) + 1e-30) << v;
      ASSERT_EQ(squared[i], x[i] > 0 ? x[i] * x[i] : 0);
      ASSERT_NEAR(silu[i], v / (1 + std::exp(-v)), 2e-6 * std::abs(v) + 1e-30) << v;
      ASSERT_EQ(product[i], x[i] * up[i]);
      const double below = (std::expm1(std::min(v, -1e-6)) - v) * 1.25;
      const double bent = v > 0 ? 0.8 * v * v + 0.5 * v : below + 0.5 * v;
      ASSERT_NEAR(xielu[i], bent, 2e-6 * std::abs(bent) + 2e-6) << v;
    }
  });
}

TEST(Rows, AreSplitScaledAndAdded) {
  ThreadPool pool(2);
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> first(4), second(4);
  SplitHalves(pool, x, 2, first, second);
  EXPECT_EQ(first, (std::vector<float>{1, 2, 5, 6}));
  EXPECT_EQ(second, (std::vector<float>{3, 4, 7, 8}));
  MulAdd(2, first, second);
  EXPECT_EQ(second, (std::vector<float>{5, 8, 17, 20}));
  SigmoidMulRows(pool, std::vector<float>{0, 0}, second);
  EXPECT_EQ(second, (std::vector<float>{2.5, 4, 8.5, 10}));
}

}  // namespace
}  // namespace quire::runner::kernels
