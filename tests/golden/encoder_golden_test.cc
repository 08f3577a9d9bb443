// Encoders against what reference implementations computed with them.
#include "tests/golden/encoder_golden.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "runner/kernels/int8_gemm.h"
#include "tests/data/test_data.h"

namespace quire::runner::golden {
namespace {

namespace fs = std::filesystem;

struct EncoderSubject {
  std::string family;
  float tolerance;
};

class EncoderTest : public testing::TestWithParam<EncoderSubject> {
 protected:
  static fs::path Root() { return test_data::FixturesPath().string() + "-2"; }
};

void ExpectEncoder(const fs::path& model, const fs::path& golden_at, float tolerance) {
  const auto golden = ReadEncoderGolden(golden_at);
  ASSERT_TRUE(golden) << golden.error().message;
  kernels::LimitPanelTarget(kernels::PanelTarget::kNone);
  ThreadPool pool(2);
  const auto result = CompareEncoder(model, *golden, pool);
  kernels::LimitPanelTarget(kernels::kNoPanelLimit);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result->pass(tolerance)) << result->Verdict(tolerance) << "\n"
                                       << testing::PrintToString(result->lines);
}

TEST_P(EncoderTest, ComputesWhatTheReferenceComputes) {
  const fs::path tiny = fs::path("tests/data/tiny") / GetParam().family;
  {
    SCOPED_TRACE(tiny);
    ExpectEncoder(tiny, tiny, GetParam().tolerance);
  }
  const fs::path directory = Root() / "models" / GetParam().family;
  if (!fs::exists(directory)) return;
  ExpectEncoder(directory, directory, GetParam().tolerance);
}

TEST_P(EncoderTest, ComputesTheSameFromGguf) {
  const fs::path directory = Root() / "models" / GetParam().family;
  const fs::path file = Root() / "gguf" / (GetParam().family + ".f16.gguf");
  if (!fs::exists(file)) GTEST_SKIP() << file << " is not there";
  ExpectEncoder(file, directory, GetParam().tolerance);
}

INSTANTIATE_TEST_SUITE_P(Families, EncoderTest,
                         testing::Values(EncoderSubject{"bert", 2e-4F}, EncoderSubject{"xlm_roberta", 2e-4F},
                                         EncoderSubject{"xlm_roberta_rerank", 2e-4F},
                                         EncoderSubject{"modernbert", 2e-4F},
                                         EncoderSubject{"embedding_gemma", 2e-4F}),
                         [](const auto& subject) { return subject.param.family; });

}  // namespace
}  // namespace quire::runner::golden
