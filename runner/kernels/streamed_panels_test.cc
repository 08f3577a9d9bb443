#include "runner/kernels/streamed_panels.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "runner/kernels/testing/random_matrix.h"

namespace quire::runner::kernels {
namespace {

using test::kTypes;
using test::Random;
using test::TestMatrix;

// A random matrix: with panels, and with the same weights streamed.
struct BothForms {
  BothForms(weights::DataType type, int64_t out, int64_t in, uint32_t seed)
      : stored(type, out, in, seed), packed(stored.view()), streamed(stored.view()) {
    ThreadPool pool(2);
    if (IsFloat(type)) {
      panels.resize(FloatPanelBytes(type, out, in));
      FillFloatPanels(pool, stored.view().data, type, out, in, panels.data());
    } else {
      panels.resize(PanelCount(out) * PanelBytes(PanelFormatOf(type), in));
      FillPanels(pool, stored.view().data, type, out, in, panels.data());
    }
    packed.panels = panels.data();
    streamed.streamed = true;
  }
  BothForms(const BothForms&) = delete;
  BothForms& operator=(const BothForms&) = delete;

  TestMatrix stored;
  std::vector<std::byte> panels;
  Matrix packed, streamed;
};

bool HasEitherPanels(weights::DataType type) { return IsFloat(type) || HasPanels(type); }

std::vector<float> MultiplyForm(ThreadPool& pool, std::span<const float> x, int64_t rows, const Matrix& w) {
  std::vector<float> y(static_cast<size_t>(rows * w.out), -1.0F);
  QuantizedActivations scratch;
  MatMul(pool, {x, rows, scratch}, w, y);
  return y;
}

// memcmp: random scales may make numbers that are none.
void ExpectSameBits(const std::vector<float>& expected, const std::vector<float>& got) {
  ASSERT_EQ(expected.size(), got.size());
  EXPECT_EQ(0, std::memcmp(expected.data(), got.data(), expected.size() * sizeof(float)));
}

// Several fills per task and several tasks, a last panel that is not whole, and buffers of an earlier, larger
// matrix.
TEST(StreamedPanels, HaveTheBitsOfPanelsInMemory) {
  ThreadPool one(1), three(3);
  for (const weights::DataType type : kTypes) {
    if (!HasEitherPanels(type)) continue;
    SCOPED_TRACE(weights::FormatOf(type).name);
    for (const auto& [out, in] : {std::pair<int64_t, int64_t>(131, 4096), {37, 512}}) {
      const BothForms w(type, out, in, 7);
      const std::vector<float> x = Random(8).Floats(static_cast<size_t>(33 * in));
      for (const int64_t rows : {1, 5, 33}) {
        const auto some = std::span(x).first(static_cast<size_t>(rows * in));
        const std::vector<float> expected = MultiplyForm(three, some, rows, w.packed);
        ExpectSameBits(expected, MultiplyForm(three, some, rows, w.streamed));
        ExpectSameBits(expected, MultiplyForm(one, some, rows, w.streamed));
      }
    }
  }
}

TEST(StreamedPanels, PartsMayBeInMemoryOrStreamed) {
  ThreadPool pool(2);
  constexpr int64_t kIn = 256, kOut = 170, kRows = 30;
  for (const weights::DataType type :
       {weights::DataType::kQ8_0, weights::DataType::kQ4_K, weights::DataType::kF16}) {
    const BothForms first(type, kOut, kIn, 1), second(type, kOut, kIn, 2);
    const std::vector<float> x = Random(3).Floats(kRows * kIn);
    const int32_t group_breaks[] = {0, 17, 17, 30};
    const auto multiply = [&](const Matrix& a, const Matrix& b) {
      const std::array<MatMulPart, 2> parts = {{{a, 0, 17}, {b, 17, 30}}};
      std::vector<float> y(kRows * kOut);
      QuantizedActivations scratch;
      MatMulParts(pool, {x, kRows, scratch, group_breaks}, parts, y);
      return y;
    };
    const std::vector<float> expected = multiply(first.packed, second.packed);
    ExpectSameBits(expected, multiply(first.streamed, second.packed));
    ExpectSameBits(expected, multiply(first.packed, second.streamed));
    ExpectSameBits(expected, multiply(first.streamed, second.streamed));
  }
}

TEST(StreamedPanels, BuffersStaySmall) {
  for (const weights::DataType type : kTypes) {
    if (!HasPanels(type)) continue;
    const Matrix wide{.type = type, .out = 100'000, .in = 4096};
    EXPECT_LE(StreamedBytes(wide), size_t{1} << 18);
    const Matrix narrow{.type = type, .out = 16, .in = 256};
    EXPECT_EQ(PanelBytes(PanelFormatOf(type), 256), StreamedBytes(narrow));
  }
}

}  // namespace
}  // namespace quire::runner::kernels
