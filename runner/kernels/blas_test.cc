#include "runner/kernels/blas.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "runner/kernels/matmul.h"
#include "runner/kernels/testing/instruction_sets.h"
#include "runner/kernels/testing/open_blas.h"
#include "runner/kernels/testing/random_matrix.h"

namespace quire::runner::kernels {
namespace {

using test::Random;
using test::TestMatrix;

// This machine as one without AVX2, for us and for OpenBLAS.
class Blas : public testing::Test {
 protected:
  void SetUp() override {
#if HWY_ARCH_X86
    test::UseCoreWithoutAvx2();
    hwy::SetSupportedTargetsForTest(HWY_SSE4);
    hwy::GetChosenTarget().Update(HWY_SSE4);
#else
    GTEST_SKIP() << "panels serve every processor of this architecture";
#endif
  }
  void TearDown() override {
    UseBlasFrom(0);
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  // Skips, visibly, where there is no library.
  static bool IsInstalled(const std::string& decided) { return !decided.starts_with("no OpenBLAS"); }

  static std::vector<float> Multiply(int threads, const std::vector<float>& x, int64_t rows,
                                     const Matrix& w) {
    ThreadPool pool(threads);
    std::vector<float> y(static_cast<size_t>(rows * w.out));
    MatMul(pool, x, rows, w, y);
    return y;
  }
};

TEST_F(Blas, IsChosenWhereItsBitsAreEqual) {
  const std::string decided = ChooseBlas();
  if (!IsInstalled(decided)) GTEST_SKIP() << decided;
  EXPECT_EQ(decided.find("other bits"), std::string::npos) << decided;
}

TEST_F(Blas, ChangesNoBit) {
  if (const std::string decided = ChooseBlas(); !IsInstalled(decided)) GTEST_SKIP() << decided;
  uint32_t seed = 1;
  for (const weights::DataType type : test::kTypes) {
    for (const int64_t in : {256, 768, 1312}) {  // the last one's inputs are no whole chains
      constexpr int64_t kOut = 203;
      if (in % weights::FormatOf(type).elements != 0) continue;
      const TestMatrix w(type, kOut, in, ++seed);
      for (const int64_t rows : {1, 7, 96, 131}) {
        const std::vector<float> x = Random(++seed).Floats(static_cast<size_t>(rows * in));
        UseBlasFrom(0);
        const std::vector<float> ours = Multiply(1, x, rows, w.view());
        UseBlasFrom(1);
        for (const int threads : {1, 3}) {
          const std::vector<float> theirs = Multiply(threads, x, rows, w.view());
          ASSERT_EQ(0, std::memcmp(ours.data(), theirs.data(), ours.size() * sizeof(float)))
              << Name(type) << " " << rows << " rows of " << in << ", " << threads << " threads";
        }
      }
    }
  }
}

// A library without locks gives threads the same buffers.
TEST_F(Blas, ServesThreadsAtTheSameTime) {
  if (const std::string decided = ChooseBlas(); !IsInstalled(decided)) GTEST_SKIP() << decided;
  constexpr int64_t kIn = 256, kOut = 512, kRows = 64;
  const TestMatrix w(weights::DataType::kF32, kOut, kIn, 1);
  const std::vector<float> x = Random(2).Floats(kRows * kIn);
  UseBlasFrom(1);
  const std::vector<float> alone = Multiply(1, x, kRows, w.view());
  ThreadPool pool(4);
  std::vector<float> y(alone.size());
  for (int i = 0; i < 1000; ++i) {
    MatMul(pool, x, kRows, w.view(), y);
    ASSERT_EQ(y, alone) << "product " << i;
  }
}

TEST(BlasOnThisMachine, IsNotLoadedWhereOurKernelsServe) {
  if (InstructionSet() == "SSE4" || InstructionSet() == "SCALAR") GTEST_SKIP() << "no AVX2 here";
  EXPECT_EQ(ChooseBlas(), "");
  EXPECT_EQ(BlasRowsMin(), 0U);
}

}  // namespace
}  // namespace quire::runner::kernels
