#include "runner/kernels/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runner/kernels/test_support.h"
#include "runner/weights/block_formats.h"

namespace quire::runner::kernels {
namespace {

using test::ForEachInstructionSet;
using test::Random;
using weights::DataType;

// Where a block type keeps its float16 numbers; every other byte of a block may hold anything.
std::vector<size_t> HalfOffsets(DataType type) {
  switch (type) {
    case DataType::kQ4_1:
    case DataType::kQ5_1:
    case DataType::kQ4_K:
    case DataType::kQ5_K:
      return {0, 2};
    case DataType::kQ2_K:
      return {80, 82};
    case DataType::kQ3_K:
      return {108};
    case DataType::kQ6_K:
      return {208};
    case DataType::kMXFP4:
      return {};
    default:
      return {0};
  }
}

constexpr auto kTypes = [] {
  std::array<DataType, weights::kBlockFormats.size()> types{};
  for (size_t i = 0; i < types.size(); ++i) types[i] = weights::kBlockFormats[i].type;
  return types;
}();

// A random matrix as it would lie in a file, at an odd address, with the values its bytes stand for.
class TestMatrix {
 public:
  TestMatrix(DataType type, int64_t out, int64_t in, uint32_t seed) : random_(seed) {
    bytes_.push_back(std::byte{0});  // everything behind it is misaligned for any type but int8
    for (int64_t row = 0; row < out; ++row) AppendRow(type, in);
    view_ = {bytes_.data() + 1, type, out, in};
  }

  const Matrix& view() const { return view_; }
  double at(int64_t row, int64_t column) const {
    return values_[static_cast<size_t>(row * view_.in + column)];
  }

 private:
  template <class T>
  void Append(const T& value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof(T));
  }
  // A float16 of about [-2, 2), subnormal now and then.
  uint16_t RandomF16() {
    const uint32_t exponent = random_.Below(8) == 0 ? 0 : 8 + random_.Below(8);
    return static_cast<uint16_t>(random_.Below(2) << 15 | exponent << 10 | random_.Below(1024));
  }
  uint16_t RandomBF16() {
    return static_cast<uint16_t>(random_.Below(2) << 15 | (120 + random_.Below(8)) << 7 | random_.Below(128));
  }
  // Any block type: random bytes, and numbers where numbers must be. What they stand for is Dequantize's
  // affair, which has tests of its own.
  void AppendBlocks(DataType type, int64_t in) {
    const weights::BlockFormat& format = weights::FormatOf(type);
    const size_t begin = bytes_.size();
    for (int64_t block = 0; block < in / format.elements; ++block) {
      const size_t at = bytes_.size();
      for (int i = 0; i < format.bytes; ++i) bytes_.push_back(static_cast<std::byte>(random_.Below(256)));
      for (const size_t offset : HalfOffsets(type)) {
        const uint16_t bits = RandomF16();
        std::memcpy(bytes_.data() + at + offset, &bits, sizeof(bits));
      }
      if (type == DataType::kMXFP4) bytes_[at] = static_cast<std::byte>(120 + random_.Below(8));
    }
    std::vector<float> widened(static_cast<size_t>(in));
    weights::Dequantize(type, bytes_.data() + begin, in, widened.data());
    values_.insert(values_.end(), widened.begin(), widened.end());
  }
  void AppendRow(DataType type, int64_t in) {
    if (weights::BlockElements(type) != 1 && type != DataType::kQ8_0) return AppendBlocks(type, in);
    double scale = 0;
    for (int64_t i = 0; i < in; ++i) {
      if (type == DataType::kF32) {
        const float value = random_.Float();
        Append(value);
        values_.push_back(value);
      } else if (type == DataType::kF16) {
        const uint16_t bits = RandomF16();
        Append(bits);
        values_.push_back(test::WidenF16(bits));
      } else if (type == DataType::kBF16) {
        const uint16_t bits = RandomBF16();
        Append(bits);
        values_.push_back(test::WidenBF16(bits));
      } else {
        if (i % 32 == 0) {
          const uint16_t bits = RandomF16();
          Append(bits);
          scale = test::WidenF16(bits);
        }
        const auto quant = static_cast<int8_t>(random_.Below(256));
        Append(quant);
        values_.push_back(scale * quant);
      }
    }
  }

  Random random_;
  std::vector<std::byte> bytes_;
  std::vector<double> values_;
  Matrix view_;
};

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

// Row r alone, in any batch, with any number of threads: the same bits.
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

TEST(EmbeddingRows, WidensExactly) {
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
    for (size_t i = 0; i < bits.size(); ++i) ASSERT_EQ(y[i], test::WidenF16(bits[i])) << bits[i];
  });
}

TEST(InstructionSet, FollowsTheMachine) {
  int tried = 0;
  ForEachInstructionSet([&] {
    ++tried;
    EXPECT_EQ(InstructionSet(), hwy::TargetName(hwy::SupportedTargets() & -hwy::SupportedTargets()));
  });
  EXPECT_GE(tried, 1);
}

}  // namespace
}  // namespace quire::runner::kernels
