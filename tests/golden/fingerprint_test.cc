// What a model computes does not depend on the CPU: widths of vectors and ways to multiply bytes are compared
// here; packaging/arm64/compare_architectures.sh compares architectures.
#include "tests/golden/fingerprint.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <string>
#include <vector>

#include "runner/kernels/int8_gemm.h"
#include "runner/kernels/testing/instruction_sets.h"

namespace quire::runner::golden {
namespace {

class FingerprintOf : public testing::TestWithParam<const char*> {};

TEST_P(FingerprintOf, IsTheSameWithEveryVectorWidth) {
  ThreadPool pool(2);
  std::vector<std::string> all;
  kernels::LimitPanelTarget(kernels::kNoPanelLimit);
  kernels::test::ForEachInstructionSet([&] {
    const bool fused = (hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3 | HWY_NEON)) != 0;
    if (!fused) return;  // products and sums are rounded separately there
    const auto of = Fingerprint(GetParam(), pool, api::kDefaultKvType);
    ASSERT_TRUE(of) << of.error().message;
    all.push_back(*of);
  });
  if (all.size() < 2) GTEST_SKIP() << "this CPU has one vector width with fused multiply-adds, or none";
  EXPECT_EQ(all[0], all[1]);
}

TEST_P(FingerprintOf, IsTheSameWithEveryInt8Product) {
  ThreadPool pool(2);
  std::vector<std::string> all;
  for (const auto target :
       {kernels::PanelTarget::kAmx, kernels::PanelTarget::kAvx512, kernels::PanelTarget::kAvxVnni,
        kernels::PanelTarget::kAvx2, kernels::PanelTarget::kNeonDot, kernels::PanelTarget::kNeon}) {
    kernels::LimitPanelTarget(target);
    if (kernels::BestPanelTarget() <= kernels::PanelTarget::kPortable) continue;
    const auto of = Fingerprint(GetParam(), pool, api::kDefaultKvType);
    ASSERT_TRUE(of) << of.error().message;
    all.push_back(*of);
  }
  kernels::LimitPanelTarget(kernels::kNoPanelLimit);
  if (all.empty()) GTEST_SKIP() << "this CPU multiplies in float32";
  for (const std::string& one : all) EXPECT_EQ(all[0], one);
}

TEST(Fingerprint, IsThatOfTheQuantizedWeights) {
  const char* const model = "tests/data/gguf/lfm2_moe.f16.gguf";
  ThreadPool pool(2);
  const auto of = Fingerprint(model, pool, api::KvType::kF16);
  const auto quantized = Fingerprint(model, pool, api::KvType::kF16, "Q8_0");
  ASSERT_TRUE(of && quantized);
  EXPECT_NE(*of, *quantized);
  EXPECT_EQ(*quantized, *Fingerprint(model, pool, api::KvType::kF16, "Q8_0"));
  EXPECT_FALSE(Fingerprint(model, pool, api::KvType::kF16, "Q3_Z"));
}

INSTANTIATE_TEST_SUITE_P(Models, FingerprintOf,
                         testing::Values("tests/data/gguf/lfm2.f16.gguf",
                                         "tests/data/gguf/lfm2_k256.Q8_0.gguf",
                                         "tests/data/gguf/gemma3.f16.gguf",
                                         "tests/data/gguf/qwen3_5.f16.gguf",
                                         "tests/data/gguf/lfm2_moe.f16.gguf"));

}  // namespace
}  // namespace quire::runner::golden
