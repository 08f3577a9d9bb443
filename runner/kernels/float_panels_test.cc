#include "runner/kernels/float_panels.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runner/kernels/matmul.h"
#include "runner/kernels/testing/instruction_sets.h"
#include "runner/kernels/testing/open_blas.h"
#include "runner/kernels/testing/random_matrix.h"

namespace quire::runner::kernels {
namespace {

using test::ForEachInstructionSet;
using test::Random;
using test::TestMatrix;
using weights::DataType;

constexpr std::array kFloats = {DataType::kF32, DataType::kF16, DataType::kBF16};

// A matrix with panels of its own.
struct InPanels {
  explicit InPanels(const Matrix& view) : matrix(view), bytes(FloatPanelBytes(view.type, view.out, view.in)) {
    ThreadPool pool(3);
    FillFloatPanels(pool, view.data, view.type, view.out, view.in, bytes.data());
    matrix.panels = bytes.data();
  }
  InPanels(const InPanels&) = delete;
  InPanels& operator=(const InPanels&) = delete;

  Matrix matrix;
  std::vector<std::byte> bytes;
};

std::vector<float> MultiplyFloat(ThreadPool& pool, std::span<const float> x, int64_t rows, const Matrix& w) {
  std::vector<float> y(static_cast<size_t>(rows * w.out), std::numeric_limits<float>::quiet_NaN());
  QuantizedActivations unused;
  MatMul(pool, {x, rows, unused}, w, y);
  return y;
}

TEST(FloatPanels, AgreeWithTheScalarReference) {
  ThreadPool pool(3);
  ForEachInstructionSet([&] {
    uint32_t seed = 1;
    for (const DataType type : kFloats) {
      for (const int64_t in : {1, 7, 96, 250}) {
        for (const int64_t out : {1, 15, 16, 37, 64, 130}) {
          const TestMatrix w(type, out, in, ++seed);
          const InPanels panels(w.view());
          for (const int64_t rows : {1, 2, 13, 29}) {
            const std::vector<float> x = Random(++seed).Floats(static_cast<size_t>(rows * in));
            const std::vector<float> y = MultiplyFloat(pool, x, rows, panels.matrix);
            for (size_t i = 0; i < y.size(); ++i) {
              const auto row = i / static_cast<size_t>(out), column = i % static_cast<size_t>(out);
              double sum = 0, size = 0;
              for (int64_t k = 0; k < in; ++k) {
                const double product = x[row * static_cast<size_t>(in) + static_cast<size_t>(k)] *
                                       w.at(static_cast<int64_t>(column), k);
                sum += product;
                size += std::abs(product);
              }
              const double bound = size * static_cast<double>(in + 2) * std::numeric_limits<float>::epsilon();
              ASSERT_NEAR(y[i], sum, bound)
                  << Name(type) << " " << rows << "x" << in << "x" << out << " at " << i;
            }
          }
        }
      }
    }
  });
}

// Larger than the scalar reference can be: in panels, and of all types row by row.
TEST(FloatPanels, AgreeWithOpenBlas) {
  test::UseCoreWithoutAvx2();
  const auto blas = test::OpenBlas::Load();
  if (!blas) GTEST_SKIP() << "libopenblas0-pthread is not installed";
  ThreadPool pool(2);
  constexpr int64_t kIn = 768, kOut = 203, kRows = 37;
  uint32_t seed = 1;
  for (const DataType type : test::kTypes) {
    const TestMatrix w(type, kOut, kIn, ++seed);
    std::vector<float> weights(kOut * kIn), x = Random(++seed).Floats(kRows * kIn);
    for (int64_t i = 0; i < kOut * kIn; ++i) {
      weights[static_cast<size_t>(i)] = static_cast<float>(w.at(i / kIn, i % kIn));
    }
    std::vector<float> expected(kRows * kOut), size(expected.size());
    blas->Multiply(x.data(), kRows, weights.data(), kOut, kIn, expected.data(), kOut);
    std::vector<std::vector<float>> results = {MultiplyFloat(pool, x, kRows, w.view())};
    if (IsFloat(type)) results.push_back(MultiplyFloat(pool, x, kRows, InPanels(w.view()).matrix));
    for (float& value : weights) value = std::abs(value);
    for (float& value : x) value = std::abs(value);
    blas->Multiply(x.data(), kRows, weights.data(), kOut, kIn, size.data(), kOut);
    for (const std::vector<float>& y : results) {
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_NEAR(y[i], expected[i], size[i] * 2 * kIn * std::numeric_limits<float>::epsilon())
            << Name(type) << " at " << i;
      }
    }
  }
}

TEST(FloatPanels, ARowsBitsDependOnThatRowOnly) {
  ThreadPool one(1), three(3);
  ForEachInstructionSet([&] {
    for (const DataType type : kFloats) {
      constexpr int64_t kIn = 193, kOut = 150, kRows = 61;
      const TestMatrix w(type, kOut, kIn, 7);
      const InPanels panels(w.view());
      const std::vector<float> x = Random(8).Floats(kRows * kIn);
      const std::vector<float> together = MultiplyFloat(three, x, kRows, panels.matrix);
      for (const int64_t rows : {1, 2, 3, 5, 11, 12, 13, 25}) {
        for (int64_t row = 0; row + rows <= kRows; row += rows) {
          const auto some =
              std::span(x).subspan(static_cast<size_t>(row * kIn), static_cast<size_t>(rows * kIn));
          const std::vector<float> y = MultiplyFloat(rows % 2 == 0 ? one : three, some, rows, panels.matrix);
          ASSERT_EQ(
              0, std::memcmp(y.data(), &together[static_cast<size_t>(row * kOut)], y.size() * sizeof(float)))
              << Name(type) << " rows " << row << " to " << row + rows;
        }
      }
    }
  });
}

// Many threads share the rows of a matrix with few outputs.
TEST(FloatPanels, AnyNumberOfThreadsGivesTheSameBits) {
  constexpr int64_t kIn = 193, kOut = 70, kRows = 301;
  const TestMatrix w(DataType::kBF16, kOut, kIn, 7);
  const InPanels panels(w.view());
  const std::vector<float> x = Random(8).Floats(kRows * kIn);
  ThreadPool one(1);
  const std::vector<float> alone = MultiplyFloat(one, x, kRows, panels.matrix);
  for (const int threads : {2, 7, 64}) {
    ThreadPool pool(threads);
    ASSERT_EQ(alone, MultiplyFloat(pool, x, kRows, panels.matrix)) << threads << " threads";
  }
}

TEST(FloatPanels, PartsHaveTheBitsOfAProductEach) {
  ThreadPool pool(2);
  constexpr int64_t kIn = 40, kOut = 70, kRows = 30;
  for (const DataType type : kFloats) {
    const TestMatrix a(type, kOut, kIn, 1), b(type, kOut, kIn, 2);
    const InPanels first(a.view()), second(b.view());
    const std::vector<float> x = Random(3).Floats(kRows * kIn);
    QuantizedActivations unused;
    std::vector<float> y(kRows * kOut);
    const std::array<MatMulPart, 2> parts = {{{first.matrix, 0, 13}, {second.matrix, 13, 30}}};
    MatMulParts(pool, {x, kRows, unused}, parts, y);
    for (const MatMulPart& part : parts) {
      const auto rows = std::span(x).subspan(static_cast<size_t>(part.begin * kIn),
                                             static_cast<size_t>((part.end - part.begin) * kIn));
      const std::vector<float> expected = MultiplyFloat(pool, rows, part.end - part.begin, part.weight);
      ASSERT_EQ(0, std::memcmp(expected.data(), &y[static_cast<size_t>(part.begin * kOut)],
                               expected.size() * sizeof(float)));
    }
  }
}

TEST(FloatPanels, Avx2AndAvx512GiveTheSameBits) {
  if ((hwy::SupportedTargets() & HWY_AVX3) == 0) GTEST_SKIP() << "no AVX-512 here";
  ThreadPool pool(2);
  for (const DataType type : kFloats) {
    const TestMatrix w(type, 100, 300, 5);
    const InPanels panels(w.view());
    const std::vector<float> x = Random(6).Floats(20 * 300);
    std::vector<std::vector<float>> results;
    for (const int64_t target : {HWY_AVX3, HWY_AVX2}) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(target);
      results.push_back(MultiplyFloat(pool, x, 20, panels.matrix));
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    ASSERT_EQ(results[0], results[1]) << Name(type);
  }
}

}  // namespace
}  // namespace quire::runner::kernels
