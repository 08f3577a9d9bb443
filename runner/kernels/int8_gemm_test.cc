#include "runner/kernels/int8_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runner/kernels/matmul.h"
#include "runner/kernels/row_epilogue.h"
#include "runner/kernels/testing/instruction_sets.h"
#include "runner/kernels/testing/random_matrix.h"
#include "runner/weights/testing/half_offsets.h"

namespace quire::runner::kernels {
namespace {

using test::ForEachInstructionSet;
using test::kTypes;
using test::Random;
using test::TestMatrix;

// A random matrix with its panels.
struct PanelMatrix {
  PanelMatrix(weights::DataType type, int64_t out, int64_t in, uint32_t seed) : stored(type, out, in, seed) {
    ThreadPool pool(2);
    panels.resize(PanelCount(out) * PanelBytes(kernels::PanelFormatOf(type), in));
    FillPanels(pool, stored.view().data, type, out, in, panels.data());
    view = stored.view();
    view.panels = panels.data();
  }

  TestMatrix stored;
  std::vector<std::byte> panels;
  Matrix view;
};

// The results of several instruction sets, one after the other.
template <class Body>
void ForEachTarget(Body&& body) {
  for (const PanelTarget target :
       {PanelTarget::kAmx, PanelTarget::kAvx512, PanelTarget::kAvxVnni, PanelTarget::kAvx2,
        PanelTarget::kNeonI8mm, PanelTarget::kNeonDot, PanelTarget::kNeon, PanelTarget::kPortable}) {
    LimitPanelTarget(target);
    if (BestPanelTarget() != target) continue;  // not this machine
    SCOPED_TRACE(static_cast<int>(target));
    body();
  }
  LimitPanelTarget(kNoPanelLimit);
}

std::vector<float> MultiplyInt8(ThreadPool& pool, std::span<const float> x, int64_t rows, const Matrix& w) {
  std::vector<float> y(static_cast<size_t>(rows * w.out), -1.0F);
  QuantizedActivations scratch;
  MatMul(pool, {x, rows, scratch}, w, y);
  return y;
}

TEST(QuantizedActivations, RoundsToTheNearestOf255Steps) {
  ThreadPool pool(1);
  ForEachInstructionSet([&] {
    std::vector<float> x(64, 0.0F);
    const float values[] = {127, -127, 0.5F, 1.5F, -0.5F, -1.5F, 2.49F, -63.51F};
    std::ranges::copy(values, x.begin());
    x[31] = 3;
    QuantizedActivations rows;
    rows.Quantize(pool, x, 1, 64);
    const int8_t expected[] = {127, -127, 0, 2, 0, -2, 2, -64};
    for (size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(expected[i], rows.quants()[i]) << i;
    EXPECT_EQ(1.0F, rows.scale()[0]);
    EXPECT_EQ(62, rows.neg_sum_first()[0]);
    EXPECT_EQ(-3, rows.neg_sum_last()[0]);
    EXPECT_EQ(59, rows.neg_sum()[0]);
    EXPECT_EQ(0.0F, rows.scale()[1]);  // nothing but zeros
    EXPECT_EQ(0, rows.neg_sum()[1]);
  });
}

TEST(QuantizedActivations, AreTheSameWithEveryInstructionSet) {
  ThreadPool pool(1);
  const std::vector<float> x = Random(3).Floats(7 * 256);
  std::vector<int8_t> quants;
  std::vector<float> scales;
  ForEachInstructionSet([&] {
    QuantizedActivations rows;
    rows.Quantize(pool, x, 7, 256);
    const std::vector<int8_t> got(rows.quants(), rows.quants() + x.size());
    const std::vector<float> got_scales(rows.scale(), rows.scale() + x.size() / kKBlock);
    if (quants.empty()) quants = got, scales = got_scales;
    EXPECT_EQ(quants, got);
    EXPECT_EQ(scales, got_scales);
  });
}

// Against the stored weights times the activations as they were rounded, in double.
void ExpectProduct(const PanelMatrix& w, std::span<const float> x, int64_t rows, std::span<const float> y) {
  const auto in = static_cast<size_t>(w.view.in), out = static_cast<size_t>(w.view.out);
  ThreadPool pool(1);
  QuantizedActivations rounded;
  rounded.Quantize(pool, x, rows, w.view.in);
  for (const QuantizedActivations::Group& group : rounded.groups()) {
    for (size_t r = 0; r < group.count; ++r) {
      for (size_t o = 0; o < out; ++o) {
        double sum = 0, size = 0;
        for (size_t i = 0; i < in; ++i) {
          const size_t at = rounded.At(group) + i / kKBlock * group.count + r;
          const double value =
              static_cast<double>(rounded.scale()[at]) * rounded.quants()[at * kKBlock + i % kKBlock];
          const double weight = w.stored.at(static_cast<int64_t>(o), static_cast<int64_t>(i));
          sum += value * weight;
          // Min offsets are summed separately, so what cancels within a weight counts too.
          size += std::abs(value) * (std::abs(weight) + 64);
        }
        const double bound = size * static_cast<double>(in / 8 + 8) * std::numeric_limits<float>::epsilon();
        ASSERT_NEAR(sum, y[(group.row + r) * out + o], bound) << "row " << group.row + r << " output " << o;
      }
    }
  }
}

TEST(Int8Gemm, AgreesWithTheStoredWeightsOnEveryMachine) {
  ThreadPool pool(3);
  uint32_t seed = 1;
  for (const weights::DataType type : kTypes) {
    if (!HasPanels(type)) continue;
    SCOPED_TRACE(weights::Name(type));
    for (const int64_t in : {32, 96, 256, 288, 512}) {
      if (in % weights::BlockElements(type) != 0) continue;
      for (const int64_t out : {1, 8, 16, 37}) {
        const PanelMatrix w(type, out, in, ++seed);
        for (const int64_t rows : {1, 2, 5, 14}) {
          const std::vector<float> x = Random(++seed).Floats(static_cast<size_t>(rows * in));
          std::vector<float> first;
          ForEachTarget([&] {
            const std::vector<float> y = MultiplyInt8(pool, x, rows, w.view);
            if (first.empty()) {
              ExpectProduct(w, x, rows, y);
              first = y;
            }
            EXPECT_EQ(first, y);
          });
        }
      }
    }
  }
}

// Sums of products that are as large as quants allow, which 16-bit sums would not hold if too many were
// added.
TEST(Int8Gemm, QuantsAtTheirLimitsDoNotOverflow) {
  ThreadPool pool(1);
  constexpr int64_t kIn = 512, kOut = 16, kRows = 19;
  for (const weights::DataType type : kTypes) {
    if (!HasPanels(type)) continue;
    SCOPED_TRACE(weights::Name(type));
    for (const int byte : {0x00, 0x7F, 0x80, 0x88, 0xFF}) {
      SCOPED_TRACE(byte);
      std::vector<std::byte> stored(weights::RowBytes(type, kIn) * kOut, static_cast<std::byte>(byte));
      const auto block = static_cast<size_t>(weights::FormatOf(type).bytes);
      for (size_t at = 0; at < stored.size(); at += block) {
        weights::test::SetHalves(type, 0x3c00, &stored[at]);  // 1
        if (weights::FormatOf(type).quants.exponent) stored[at] = std::byte{127};
      }
      std::vector<std::byte> panels(PanelCount(kOut) * PanelBytes(PanelFormatOf(type), kIn));
      FillPanels(pool, stored.data(), type, kOut, kIn, panels.data());
      const Matrix matrix{stored.data(), type, kOut, kIn, panels.data()};
      std::vector<float> dequantized(kIn);
      weights::Dequantize(type, stored.data(), kIn, dequantized.data());
      std::vector<float> x(kRows * kIn);
      for (size_t i = 0; i < x.size(); ++i) x[i] = i / kIn % 2 == 0 || i % 3 == 0 ? 1.0F : -1.0F;
      std::vector<float> first;
      ForEachTarget([&] {
        const std::vector<float> y = MultiplyInt8(pool, x, kRows, matrix);
        if (first.empty()) {
          first = y;
          for (size_t row = 0; row < kRows; ++row) {
            double sum = 0, size = 0;
            for (size_t i = 0; i < kIn; ++i) {
              sum += static_cast<double>(dequantized[i]) * x[row * kIn + i];
              size += std::abs(static_cast<double>(dequantized[i])) + 64;
            }
            ASSERT_NEAR(sum, y[row * kOut], size * 1e-5) << row;
          }
        }
        EXPECT_EQ(first, y);
      });
    }
  }
}

// A maximum keeps or drops NaN by its place, which integers would then hide.
TEST(Int8Gemm, ActivationsThatAreNotFiniteAreNotHidden) {
  ThreadPool pool(1);
  constexpr int64_t kIn = 512, kOut = 24, kRows = 5;
  for (const weights::DataType type : kTypes) {
    if (!HasPanels(type)) continue;
    SCOPED_TRACE(weights::Name(type));
    const PanelMatrix w(type, kOut, kIn, 9);
    const std::vector<float> x = Random(10).Floats(kRows * kIn);
    ForEachTarget([&] {
      const std::vector<float> finite = MultiplyInt8(pool, x, kRows, w.view);
      for (size_t at = 0; at < 4 * kKBlock; ++at) {
        constexpr float kInfinity = std::numeric_limits<float>::infinity();
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
          std::vector<float> with = x;
          with[2 * kIn + at] = bad;
          std::vector<float> y = MultiplyInt8(pool, with, kRows, w.view);
          for (size_t i = 2 * kOut; i < 3 * kOut; ++i) {
            ASSERT_FALSE(std::isfinite(y[i])) << bad << " at " << at;
            y[i] = finite[i];
          }
          ASSERT_EQ(finite, y);
        }
      }
    });
  }
}

TEST(Int8Gemm, ARowDoesNotSeeTheOthers) {
  ThreadPool one(1), three(3);
  for (const weights::DataType type : kTypes) {
    if (!HasPanels(type)) continue;
    SCOPED_TRACE(weights::Name(type));
    constexpr int64_t kIn = 1280, kOut = 152, kRows = 61;  // some chunks of inputs, the last one not full
    const PanelMatrix w(type, kOut, kIn, 5);
    const std::vector<float> x = Random(6).Floats(kRows * kIn);
    ForEachTarget([&] {
      const std::vector<float> together = MultiplyInt8(three, x, kRows, w.view);
      std::vector<float> apart;
      for (const auto& [begin, end] : {std::pair(0, 1), {1, 3}, {3, 20}, {20, 61}}) {
        const auto rows =
            std::span(x).subspan(static_cast<size_t>(begin * kIn), static_cast<size_t>((end - begin) * kIn));
        const std::vector<float> part = MultiplyInt8(one, rows, end - begin, w.view);
        apart.insert(apart.end(), part.begin(), part.end());
      }
      EXPECT_EQ(together, apart);
    });
  }
}

// More rows than are multiplied with a chunk of weights before it is unpacked again; the last ones are few.
TEST(Int8Gemm, ManyRowsHaveTheBitsOfFewAtATime) {
  ThreadPool pool(2);
  constexpr int64_t kIn = 1280, kOut = 24, kRows = 387, kAtATime = 43;
  for (const weights::DataType type : {weights::DataType::kQ8_0, weights::DataType::kQ4_0,
                                       weights::DataType::kQ4_K, weights::DataType::kQ6_K}) {
    SCOPED_TRACE(weights::Name(type));
    const PanelMatrix w(type, kOut, kIn, 5);
    const std::vector<float> x = Random(7).Floats(kRows * kIn);
    ForEachTarget([&] {
      const std::vector<float> together = MultiplyInt8(pool, x, kRows, w.view);
      std::vector<float> apart;
      for (size_t begin = 0; begin < kRows; begin += kAtATime) {
        const std::vector<float> part =
            MultiplyInt8(pool, std::span(x).subspan(begin * kIn, kAtATime * kIn), kAtATime, w.view);
        apart.insert(apart.end(), part.begin(), part.end());
      }
      EXPECT_EQ(together, apart);
    });
  }
}

// Many threads share the rows of a matrix with few outputs.
TEST(Int8Gemm, AnyNumberOfThreadsGivesTheSameBits) {
  constexpr int64_t kIn = 512, kOut = 40, kRows = 301;
  const PanelMatrix q8(weights::DataType::kQ8_0, kOut, kIn, 3), q4(weights::DataType::kQ4_K, kOut, kIn, 4);
  const std::vector<float> x = Random(5).Floats(kRows * kIn);
  ThreadPool one(1);
  for (const int threads : {2, 7, 64}) {
    ThreadPool pool(threads);
    for (const Matrix& w : {q8.view, q4.view}) {
      ASSERT_EQ(MultiplyInt8(one, x, kRows, w), MultiplyInt8(pool, x, kRows, w)) << threads << " threads";
      std::vector<float> y(kRows * kOut, -1.0F), seen(kRows * kOut);
      QuantizedActivations scratch;
      MatMul(
          pool, {x, kRows, scratch}, w,
          [&](size_t row, size_t begin, std::span<float> values) {
            for (size_t i = 0; i < values.size(); ++i) {
              seen[row * kOut + begin + i] += 1;
              values[i] *= 2;
            }
          },
          y);
      std::vector<float> twice = MultiplyInt8(one, x, kRows, w);
      for (float& value : twice) value *= 2;
      ASSERT_EQ(twice, y) << threads << " threads";
      ASSERT_EQ(seen, std::vector<float>(kRows * kOut, 1)) << threads << " threads";
    }
  }
}

TEST(Int8Gemm, ProductsTogetherHaveTheBitsOfEachAlone) {
  constexpr int64_t kIn = 512;
  const PanelMatrix q8(weights::DataType::kQ8_0, 300, kIn, 3), q4(weights::DataType::kQ4_K, 16, kIn, 4),
      q6(weights::DataType::kQ6_K, 1000, kIn, 5);
  Matrix in_place = q8.view, none = q8.view;
  in_place.panels = nullptr;
  none.out = 0;
  const Matrix* const weights[] = {&q8.view, &in_place, &q4.view, &none, &q6.view};
  ThreadPool one(1);
  for (const int threads : {1, 2, 7}) {
    ThreadPool pool(threads);
    for (const int64_t rows : {0, 1, 2, 75}) {
      const std::vector<float> x = Random(5).Floats(static_cast<size_t>(rows * kIn));
      std::vector<std::vector<float>> results, expected;
      for (const Matrix* w : weights) {
        results.emplace_back(static_cast<size_t>(rows * w->out), -1.0F);
        expected.push_back(MultiplyInt8(one, x, rows, *w));
      }
      for (float& value : expected[4]) value *= 2;
      const RowEpilogue twice = [](size_t, size_t, std::span<float> values) {
        for (float& value : values) value *= 2;
      };
      std::vector<MatMulTarget> targets;
      for (size_t i = 0; i < std::size(weights); ++i) {
        targets.push_back({.weight = weights[i], .y = results[i], .then = i == 4 ? &twice : nullptr});
      }
      QuantizedActivations scratch;
      MatMulTogether(pool, {x, rows, scratch}, targets);
      ASSERT_EQ(expected, results) << rows << " rows, " << threads << " threads";
    }
  }
}

TEST(Int8Gemm, PartsHaveTheBitsOfProductsOfTheirOwn) {
  ThreadPool pool(2);
  constexpr int64_t kIn = 64, kOut = 40;
  const PanelMatrix first(weights::DataType::kQ8_0, kOut, kIn, 1),
      second(weights::DataType::kQ8_0, kOut, kIn, 2);
  const std::vector<float> x = Random(3).Floats(30 * kIn);
  const int32_t group_breaks[] = {0, 17, 17, 30};
  const MatMulPart parts[] = {{first.view, 0, 17}, {second.view, 17, 30}};
  std::vector<float> y(30 * kOut);
  QuantizedActivations scratch;
  MatMulParts(pool, {x, 30, scratch, group_breaks}, parts, y);
  std::vector<float> expected = MultiplyInt8(pool, std::span(x).first(17 * kIn), 17, first.view);
  const std::vector<float> rest = MultiplyInt8(pool, std::span(x).subspan(17 * kIn), 13, second.view);
  expected.insert(expected.end(), rest.begin(), rest.end());
  EXPECT_EQ(expected, y);
}

TEST(Int8Gemm, RowsThatAreNamedHaveTheBitsOfRowsThatAreCopied) {
  ThreadPool pool(2);
  constexpr int64_t kIn = 160, kOut = 40, kGiven = 5;
  const PanelMatrix first(weights::DataType::kQ4_0, kOut, kIn, 1),
      second(weights::DataType::kQ4_0, kOut, kIn, 2);
  const std::vector<float> x = Random(3).Floats(kGiven * kIn);
  std::vector<int32_t> row_at;
  for (int32_t i = 0; i < 120; ++i)
    row_at.push_back(static_cast<int32_t>(i * 7 % kGiven));  // many: with threads
  const auto rows = std::ssize(row_at);
  std::vector<float> copied;
  for (const int32_t row : row_at) {
    copied.insert(copied.end(), x.begin() + row * kIn, x.begin() + (row + 1) * kIn);
  }
  const int32_t group_breaks[] = {0, 17, static_cast<int32_t>(rows)};
  const MatMulPart parts[] = {{first.view, 0, 17}, {second.view, 17, rows}};
  std::vector<float> y(static_cast<size_t>(rows * kOut)), expected(y.size());
  QuantizedActivations scratch;
  MatMulParts(pool, {copied, rows, scratch, group_breaks}, parts, expected);
  MatMulParts(pool, {x, kIn, row_at, scratch, group_breaks}, parts, y);
  EXPECT_EQ(expected, y);
}

TEST(MatMulInput, IsQuantizedAnewWhenAnotherUsedTheScratch) {
  ThreadPool pool(1);
  const PanelMatrix w(weights::DataType::kQ4_0, 16, 32, 1);
  const std::vector<float> x = Random(1).Floats(32), other = Random(2).Floats(32);
  QuantizedActivations scratch;
  const MatMulInput in(x, 1, scratch);
  std::vector<float> before(16), between(16), after(16);
  MatMul(pool, in, w.view, before);
  MatMul(pool, {other, 1, scratch}, w.view, between);
  MatMul(pool, in, w.view, after);
  EXPECT_EQ(before, after);
  EXPECT_NE(before, between);
}

}  // namespace
}  // namespace quire::runner::kernels
