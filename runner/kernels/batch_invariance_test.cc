#include "runner/kernels/batch_invariance.h"

#include <gtest/gtest.h>

#include <vector>

#include "runner/kernels/matmul.h"

namespace quire::runner::kernels {
namespace {

TEST(BatchInvariance, TheKernelsOfThisMachineKeepTheirPromise) { EXPECT_TRUE(CheckBatchInvariance()); }

TEST(BatchInvariance, TheSafePathGivesTheSameBits) {
  std::vector<float> weights(40 * 24);
  std::vector<float> x(9 * 24);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 13) * 0.37F - 2;
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) * 0.11F - 0.3F;
  const Matrix matrix{reinterpret_cast<const std::byte*>(weights.data()), weights::DataType::kF32, 40, 24};
  ThreadPool pool(2);
  std::vector<float> batched(9 * 40);
  MatMul(pool, x, 9, matrix, batched);
  ForceSingleRow();
  std::vector<float> single(9 * 40);
  MatMul(pool, x, 9, matrix, single);
  EXPECT_EQ(single, batched);
  EXPECT_TRUE(CheckBatchInvariance());
}

}  // namespace
}  // namespace quire::runner::kernels
