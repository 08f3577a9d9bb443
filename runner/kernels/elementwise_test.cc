#include "runner/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "runner/kernels/short_conv.h"
#include "runner/kernels/test_support.h"

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

// Three sequences of different lengths, run in steps of `chunk` rows each.
std::vector<std::vector<float>> RunConv(ThreadPool& pool, int64_t channels, int64_t kernel, size_t chunk,
                                        bool biased, std::vector<std::vector<float>>* tails) {
  const auto width = static_cast<size_t>(channels);
  Random random(11);
  const std::vector<float> taps = random.Floats(static_cast<size_t>(kernel) * width),
                           bias = random.Floats(width);
  const size_t lengths[] = {1, 9, 40};
  std::vector<std::vector<float>> inputs, outputs(3);
  for (const size_t length : lengths) inputs.push_back(random.Floats(length * 3 * width));
  tails->assign(3, std::vector<float>(static_cast<size_t>(kernel - 1) * width, 0.0F));
  for (size_t from = 0; from < 40; from += chunk) {
    std::vector<float> bcx;
    std::vector<int32_t> row_begin = {0};
    std::vector<float*> tail_of;
    for (size_t s = 0; s < 3; ++s) {
      const size_t begin = std::min(from, lengths[s]), end = std::min(from + chunk, lengths[s]);
      bcx.insert(bcx.end(), inputs[s].begin() + static_cast<ptrdiff_t>(begin * 3 * width),
                 inputs[s].begin() + static_cast<ptrdiff_t>(end * 3 * width));
      row_begin.push_back(row_begin.back() + static_cast<int32_t>(end - begin));
      tail_of.push_back((*tails)[s].data());
    }
    std::vector<float> y(static_cast<size_t>(row_begin.back()) * width);
    ShortConv(pool, {.channels = channels,
                     .kernel = kernel,
                     .taps = taps,
                     .bias = biased ? std::span<const float>(bias) : std::span<const float>(),
                     .bcx = bcx,
                     .row_begin = row_begin,
                     .tails = tail_of,
                     .y = y});
    for (size_t s = 0; s < 3; ++s) {
      outputs[s].insert(outputs[s].end(), y.begin() + static_cast<ptrdiff_t>(row_begin[s]) * channels,
                        y.begin() + static_cast<ptrdiff_t>(row_begin[s + 1]) * channels);
    }
  }
  if (chunk < 40) return outputs;
  for (size_t s = 0; s < 3; ++s) {  // the formula, in double
    const auto u = [&](size_t t, size_t c) {
      return inputs[s][t * 3 * width + c] * static_cast<double>(inputs[s][(t * 3 + 2) * width + c]);
    };
    for (size_t i = 0; i < outputs[s].size(); ++i) {
      const size_t t = i / width, c = i % width;
      double sum = biased ? bias[c] : 0;
      for (size_t k = 0; k < static_cast<size_t>(kernel); ++k) {
        if (t + k + 1 >= static_cast<size_t>(kernel)) {
          sum += taps[k * width + c] * u(t + k + 1 - static_cast<size_t>(kernel), c);
        }
      }
      EXPECT_NEAR(outputs[s][i], inputs[s][(t * 3 + 1) * width + c] * sum, 1e-5)
          << "sequence " << s << " at " << i;
    }
  }
  return outputs;
}

TEST(ShortConv, AgreesWithTheFormulaHoweverItIsCut) {
  ThreadPool pool(3);
  ForEachInstructionSet([&] {
    for (const int64_t channels : {1, 16, 37, 700}) {
      for (const int64_t kernel : {1, 2, 3, 6}) {
        std::vector<std::vector<float>> whole_tails, tails;
        const auto whole = RunConv(pool, channels, kernel, 40, kernel % 2 == 0, &whole_tails);
        for (const size_t chunk : {1U, 2U, 3U, 7U, 39U}) {
          ASSERT_EQ(whole, RunConv(pool, channels, kernel, chunk, kernel % 2 == 0, &tails))
              << "chunks of " << chunk;
          ASSERT_EQ(whole_tails, tails) << "chunks of " << chunk;
        }
      }
    }
  });
}

}  // namespace
}  // namespace quire::runner::kernels
