#include "runner/kernels/self_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/kernels/int8_gemm.h"
#include "runner/kernels/matmul.h"

namespace quire::runner::kernels {
namespace {

TEST(KernelSelfCheck, FindsAllBitsEqualOnThisCpu) {
  const auto checks = CheckKernels();
  EXPECT_EQ(checks.size(), 4U);
  for (const KernelCheck& check : checks) EXPECT_EQ(check.failure, "") << check.subject;
#if defined(__x86_64__)  // other architectures have no scalar target
  EXPECT_THAT(checks.at(1).subject, testing::HasSubstr("SCALAR"));
#endif
}

TEST(KernelSelfCheck, LeavesTheBestInstructionSetChosen) {
  const PanelTarget target = BestPanelTarget();
  const std::string_view set = InstructionSet();
  static_cast<void>(CheckKernels());
  EXPECT_EQ(BestPanelTarget(), target);
  EXPECT_EQ(InstructionSet(), set);
}

}  // namespace
}  // namespace quire::runner::kernels
