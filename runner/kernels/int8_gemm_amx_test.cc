// Products by AMX tiles, on a model of the tile instructions and where there are some on the processor's.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "runner/kernels/int8_gemm.h"
#include "runner/kernels/testing/amx_model.h"
#include "runner/kernels/testing/random_matrix.h"

namespace quire::runner::kernels {
namespace {

struct Shape {
  weights::DataType type;
  int64_t out, in;
};

std::vector<std::byte> PanelsOf(const Shape& shape, const std::byte* stored) {
  ThreadPool pool(1);
  std::vector<std::byte> panels(PanelCount(shape.out) * PanelBytes(PanelFormatOf(shape.type), shape.in));
  FillPanels(pool, stored, shape.type, shape.out, shape.in, panels.data());
  return panels;
}

std::vector<float> MultiplyTiles(Int8Gemm* gemm, const Shape& shape, const std::vector<std::byte>& panels,
                                 const QuantizedActivations& rows) {
  const QuantizedActivations::Group& last = rows.groups().back();
  const auto out = static_cast<size_t>(shape.out);
  std::vector<float> y((last.row + last.count) * out, -1.0F);
  gemm({.panels = panels.data(),
        .out = out,
        .in = static_cast<size_t>(shape.in),
        .begin = 0,
        .end = PanelCount(shape.out),
        .rows = &rows,
        .first_group = 0,
        .last_group = rows.groups().size(),
        .y = y.data()});
  return y;
}

// The products of the model, and of the processor's tiles if it has some, have the bits of the portable ones.
void ExpectPortableBits(const Shape& shape, const std::byte* stored, const QuantizedActivations& rows) {
  const std::vector<std::byte> panels = PanelsOf(shape, stored);
  const std::vector<float> expected = MultiplyTiles(Int8GemmPortable(shape.type), shape, panels, rows);
  EXPECT_EQ(expected, MultiplyTiles(test::Int8GemmAmxModel(shape.type), shape, panels, rows));
  if (Int8Gemm* const gemm = Int8GemmAmx(shape.type); gemm != nullptr) {
    EXPECT_EQ(expected, MultiplyTiles(gemm, shape, panels, rows)) << "the processor's tiles";
  }
}

class AmxTiles : public testing::Test {
 protected:
  void SetUp() override {
    if (test::Int8GemmAmxModel(weights::DataType::kQ8_0) == nullptr) {
      GTEST_SKIP() << "this CPU has no AVX-512 VNNI, which adds the sums of tiles";
    }
  }

  ThreadPool pool_{1};
};

TEST_F(AmxTiles, HaveTheBitsOfPortableProducts) {
  uint32_t seed = 1;
  for (const weights::DataType type : test::kTypes) {
    if (!HasPanels(type)) continue;
    SCOPED_TRACE(weights::Name(type));
    for (const int64_t in : {32, 96, 256, 288, 768}) {  // parts of chunks too
      if (in % weights::BlockElements(type) != 0) continue;
      for (const auto& [out, count] : {std::pair<int64_t, int64_t>{16, 13}, {37, 24}, {5, 35}}) {
        const test::TestMatrix stored(type, out, in, ++seed);
        const std::vector<float> x = test::Random(++seed).Floats(static_cast<size_t>(count * in));
        QuantizedActivations rows(QuantizedActivations::kMaxGroupRows);
        rows.Quantize(pool_, x, count, in);
        ExpectPortableBits({type, out, in}, stored.view().data, rows);
      }
    }
  }
}

TEST_F(AmxTiles, TakeGroupsOfAnySize) {
  constexpr int64_t kIn = 256, kOut = 16, kRows = 136;
  std::vector<int32_t> group_breaks;
  for (int32_t row = 0, count = 16; count > 0; --count) group_breaks.push_back(row += count);
  const std::vector<float> x = test::Random(1).Floats(kRows * kIn);
  QuantizedActivations rows(QuantizedActivations::kMaxGroupRows);
  rows.Quantize(pool_, x, kRows, kIn, group_breaks);
  ASSERT_EQ(rows.groups().size(), 16U);
  for (const weights::DataType type : {weights::DataType::kQ8_0, weights::DataType::kQ6_K}) {
    SCOPED_TRACE(weights::Name(type));
    const test::TestMatrix stored(type, kOut, kIn, 2);
    ExpectPortableBits({type, kOut, kIn}, stored.view().data, rows);
  }
}

// Weights that a signed byte holds only behind the zero point, and sums as large as they become.
TEST_F(AmxTiles, TakeQuantsAtTheirLimits) {
  constexpr int64_t kIn = 512, kOut = 16, kRows = 14;
  std::vector<float> x(kRows * kIn);
  for (size_t i = 0; i < x.size(); ++i) x[i] = i / kIn % 2 == 0 || i % 3 == 0 ? 1.0F : -1.0F;
  QuantizedActivations rows(QuantizedActivations::kMaxGroupRows);
  rows.Quantize(pool_, x, kRows, kIn);
  for (const weights::DataType type : test::kTypes) {
    if (!HasPanels(type)) continue;
    SCOPED_TRACE(weights::Name(type));
    for (const int byte : {0x00, 0x3B, 0x80, 0xBB}) {  // scales of finite value
      SCOPED_TRACE(byte);
      const std::vector<std::byte> stored(weights::RowBytes(type, kIn) * kOut, static_cast<std::byte>(byte));
      ExpectPortableBits({type, kOut, kIn}, stored.data(), rows);
    }
  }
}

}  // namespace
}  // namespace quire::runner::kernels
