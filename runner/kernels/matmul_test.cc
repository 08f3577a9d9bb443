#include "runner/kernels/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runner/kernels/testing/instruction_sets.h"
#include "runner/kernels/testing/random_matrix.h"
#include "runner/weights/block_formats.h"

namespace quire::runner::kernels {
namespace {

using test::ForEachInstructionSet;
using test::kTypes;
using test::Random;
using test::TestMatrix;
using weights::DataType;

// In double; `bound` gets the error that float32 sums in any order may have.
double Dot(const std::vector<float>& x, size_t row, const TestMatrix& w, int64_t out, double* bound) {
  double sum = 0, size = 0;
  for (int64_t i = 0; i < w.view().in; ++i) {
    const double product = x[row * static_cast<size_t>(w.view().in) + static_cast<size_t>(i)] * w.at(out, i);
    sum += product;
    size += std::abs(product);
  }
  *bound = size * static_cast<double>(w.view().in + 2) * std::numeric_limits<float>::epsilon();
  return sum;
}

std::vector<float> Multiply(ThreadPool& pool, const std::vector<float>& x, int64_t rows, const Matrix& w) {
  std::vector<float> y(static_cast<size_t>(rows * w.out), -1.0F);
  MatMul(pool, x, rows, w, y);
  return y;
}

TEST(MatMul, AgreesWithTheScalarReference) {
  ThreadPool pool(3);
  ForEachInstructionSet([&] {
    uint32_t seed = 1;
    for (const DataType type : kTypes) {
      for (const int64_t in : {1, 7, 16, 31, 32, 33, 96, 250, 512}) {
        if (in % weights::BlockElements(type) != 0) continue;
        for (const int64_t out : {1, 3, 4, 5, 8, 13, 37}) {
          const TestMatrix w(type, out, in, ++seed);
          for (const int64_t rows : {1, 2, 5, 7}) {
            const std::vector<float> x = Random(++seed).Floats(static_cast<size_t>(rows * in));
            const std::vector<float> y = Multiply(pool, x, rows, w.view());
            for (size_t i = 0; i < y.size(); ++i) {
              double bound = 0;
              const double expected =
                  Dot(x, i / static_cast<size_t>(out), w, static_cast<int64_t>(i) % out, &bound);
              ASSERT_NEAR(y[i], expected, bound)
                  << Name(type) << " " << rows << "x" << in << "x" << out << " at " << i;
            }
          }
        }
      }
    }
  });
}

// Row r is bit-identical alone, in any batch and with any number of threads.
TEST(MatMul, ARowsBitsDependOnThatRowOnly) {
  ThreadPool one(1), three(3);
  ForEachInstructionSet([&] {
    for (const DataType type : kTypes) {
      for (const int64_t in : {64, 96, 45, 512}) {
        if (in % weights::BlockElements(type) != 0) continue;
        constexpr int64_t kRows = 61, kOut = 203;
        const TestMatrix w(type, kOut, in, 7);
        const std::vector<float> x = Random(8).Floats(static_cast<size_t>(kRows * in));
        const std::vector<float> whole = Multiply(three, x, kRows, w.view());
        EXPECT_EQ(whole, Multiply(one, x, kRows, w.view()));
        for (const int64_t chunk : {1, 2, 3, 4, 5, 6, 7, 12, 24, 60}) {
          std::vector<float> pieces;
          for (int64_t row = 0; row < kRows; row += chunk) {
            const int64_t rows = std::min(chunk, kRows - row);
            const std::vector<float> part(x.begin() + row * in, x.begin() + (row + rows) * in);
            const std::vector<float> y = Multiply(three, part, rows, w.view());
            pieces.insert(pieces.end(), y.begin(), y.end());
          }
          ASSERT_EQ(whole, pieces) << Name(type) << " in chunks of " << chunk;
        }
      }
    }
  });
}

// An output does not depend on which outputs are computed with it either (tasks cut anywhere).
TEST(MatMul, AnOutputsBitsDependOnItsWeightsOnly) {
  ThreadPool pool(2);
  ForEachInstructionSet([&] {
    for (const DataType type : kTypes) {
      const TestMatrix w(type, 19, 256, 9);
      const std::vector<float> x = Random(10).Floats(5 * 256);
      const std::vector<float> whole = Multiply(pool, x, 5, w.view());
      for (int64_t out = 0; out < 19; ++out) {
        Matrix one = w.view();
        one.data += static_cast<size_t>(out) * weights::RowBytes(type, 256);
        one.out = 1;
        const std::vector<float> y = Multiply(pool, x, 5, one);
        for (size_t row = 0; row < 5; ++row) ASSERT_EQ(y[row], whole[row * 19 + static_cast<size_t>(out)]);
      }
    }
  });
}

TEST(MatMul, OfNoRowsWritesNothing) {
  ThreadPool pool(2);
  const TestMatrix w(DataType::kF32, 4, 4, 1);
  MatMul(pool, {}, 0, w.view(), {});
}

TEST(EmbeddingRows, ConvertsExactly) {
  ForEachInstructionSet([&] {
    for (const DataType type : kTypes) {
      for (const int64_t in : {1, 15, 32, 50, 96, 512}) {
        if (in % weights::BlockElements(type) != 0) continue;
        const TestMatrix table(type, 9, in, 3);
        const std::vector<int32_t> ids = {8, 0, 3, 3};
        std::vector<float> y(ids.size() * static_cast<size_t>(in));
        EmbeddingRows(table.view(), ids, y);
        for (size_t i = 0; i < y.size(); ++i) {
          const auto n = static_cast<size_t>(in);
          ASSERT_EQ(y[i], table.at(ids[i / n], static_cast<int64_t>(i % n))) << Name(type) << " width " << in;
        }
      }
    }
  });
}

TEST(EmbeddingRows, EveryFiniteF16) {
  std::vector<uint16_t> bits;
  for (uint32_t i = 0; i < 65536; ++i) {
    if ((i >> 10 & 31) != 31) bits.push_back(static_cast<uint16_t>(i));
  }
  const Matrix table{reinterpret_cast<const std::byte*>(bits.data()), DataType::kF16, 1,
                     static_cast<int64_t>(bits.size())};
  ForEachInstructionSet([&] {
    std::vector<float> y(bits.size());
    EmbeddingRows(table, std::vector<int32_t>{0}, y);
    for (size_t i = 0; i < bits.size(); ++i) ASSERT_EQ(y[i], test::F16ToFloat32(bits[i])) << bits[i];
  });
}

TEST(InstructionSet, FollowsTheMachine) {
  int tried = 0;
  ForEachInstructionSet([&] {
    ++tried;
    const int64_t usable = (hwy::SupportedTargets() | HWY_STATIC_TARGET) & HWY_TARGETS;
    EXPECT_EQ(InstructionSet(), hwy::TargetName(usable & -usable));
  });
  EXPECT_GE(tried, 1);
}

}  // namespace
}  // namespace quire::runner::kernels
