// Models against what reference implementations computed with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/kernels/int8_gemm.h"
#include "runner/kernels/testing/instruction_sets.h"
#include "runner/weights/model_files.h"
#include "runner/weights/packed_model.h"
#include "tests/data/test_data.h"
#include "tests/golden/compare.h"
#include "tests/golden/draft_golden.h"

namespace quire::runner::golden {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

void ExpectGolden(const fs::path& model, const api::Result<GoldenFile>& golden, float tolerance) {
  ASSERT_TRUE(golden) << golden.error().message;
  ThreadPool pool(2);
  auto run = GoldenRun::Open(model, pool, 1, 256);
  ASSERT_TRUE(run) << run.error().message;
  ASSERT_EQ(run->model().vocab_size(), golden->vocab);
  ASSERT_FALSE(golden->prompts.empty());
  const Comparison result =
      Compare(*run, *golden, {.tolerance = tolerance, .chunks = {1, 7, 64}, .restore_every_offset = true});
  EXPECT_TRUE(result.pass(tolerance)) << result.Verdict(tolerance) << "\n"
                                      << testing::PrintToString(result.lines);
}

constexpr const char* kLfm2 = "tests/data/models/lfm2";

// transformers, float32. Measured: 5e-5.
TEST(Golden, Lfm2WithEveryInstructionSet) {
  kernels::test::ForEachInstructionSet([] { ExpectGolden(kLfm2, ReadGolden(kLfm2), 2e-4F); });
}
TEST(Golden, Lfm2AsF16Gguf) { ExpectGolden("tests/data/gguf/lfm2.f16.gguf", ReadGolden(kLfm2), 2e-4F); }

// A delta net amplifies the rounding of float32 more than attention does. Measured: 1.3e-4.
constexpr const char* kQwen35 = "tests/data/models/qwen3_5";
TEST(Golden, Qwen35WithEveryInstructionSet) {
  kernels::test::ForEachInstructionSet([] { ExpectGolden(kQwen35, ReadGolden(kQwen35), 1e-3F); });
}

// Quantized weights: in float32 what transformers computes with the dequantized ones, and as they are served,
// with activations rounded to int8, no further from it than llama.cpp. Measured: 3e-5; 0.6 to 1.05 of it.
void ExpectQuantGolden(const fs::path& model, const fs::path& json, const char* type) {
  SCOPED_TRACE(type);
  const auto golden = ReadQuantGolden(json, type);
  kernels::LimitPanelTarget(kernels::PanelTarget::kNone);
  ExpectGolden(model, golden, 1e-3F);
  kernels::LimitPanelTarget(kernels::kNoPanelLimit);
  ASSERT_TRUE(golden);
  ThreadPool pool(2);
  auto run = GoldenRun::Open(model, pool, 1, 256);
  ASSERT_TRUE(run) << run.error().message;
  const Rounding rounding =
      CompareRounding(*run, *golden, {.chunks = {1, 7, 64}, .restore_every_offset = true});
  EXPECT_TRUE(rounding.pass()) << rounding.Verdict() << "\n" << testing::PrintToString(rounding.lines);
}

TEST(Golden, Lfm2Quantized) {
  ExpectQuantGolden("tests/data/gguf/lfm2_k256.Q8_0.gguf", "tests/data/gguf/lfm2_k256.Q8_0.golden.json",
                    "Q8_0");
}

TEST(Golden, EveryQuantizedType) {
  QUIRE_FIND_OR_SKIP(files, "gguf_quant");
  for (const char* type :
       {"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_NL"}) {
    ExpectQuantGolden(files / (std::string("lfm2_k256.") + type + ".gguf"),
                      files / "lfm2_k256.quant_golden.json", type);
  }
  ExpectQuantGolden(files / "llama_k256.Q4_K_M.gguf", files / "llama_k256.quant_golden.json", "Q4_K_M");
}

// Every family from a directory and, where there is one, from the GGUF that a converter made of it; families
// that are not in tests/data/models from a smaller directory first. Logits are of order 10; delta nets
// amplify the rounding of float32 more than attention does.
struct FamilyGolden {
  const char* name;
  float tolerance;
  const char* gguf;  // or null
};

void PrintTo(const FamilyGolden& family, std::ostream* out) { *out << family.name; }

class FamilyTest : public testing::TestWithParam<FamilyGolden> {};

TEST_P(FamilyTest, ComputesWhatItsReferenceComputed) {
  const fs::path name = fs::path("models") / GetParam().name,
                 tiny = fs::path("tests/data/tiny") / GetParam().name;
  if (fs::exists(tiny)) {
    SCOPED_TRACE(tiny);
    ExpectGolden(tiny, ReadGolden(tiny), GetParam().tolerance);
    if (test_data::Find(name).empty()) return;
  }
  QUIRE_FIND_OR_SKIP(directory, name);
  const auto golden = ReadGolden(directory);
  {
    SCOPED_TRACE(directory);
    ExpectGolden(directory, golden, GetParam().tolerance);
  }
  if (GetParam().gguf == nullptr) return;
  SCOPED_TRACE(GetParam().gguf);
  QUIRE_FIND_OR_SKIP(gguf, fs::path("gguf") / GetParam().gguf);
  ExpectGolden(gguf, golden, GetParam().tolerance);
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTest,
                         testing::Values(FamilyGolden{"gemma2", 2e-4F, "gemma2.f16.gguf"},
                                         FamilyGolden{"gemma3", 2e-4F, "gemma3.f16.gguf"},
                                         FamilyGolden{"gemma4_e", 2e-4F, "gemma4_e.f16.gguf"},
                                         FamilyGolden{"gemma4_moe", 2e-4F, "gemma4_moe.f16.gguf"},
                                         FamilyGolden{"lfm2", 2e-4F, "lfm2.bf16.gguf"},
                                         FamilyGolden{"lfm2_moe", 2e-4F, "lfm2_moe.f16.gguf"},
                                         FamilyGolden{"llama", 2e-4F, "llama.f16.gguf"},
                                         FamilyGolden{"mistral", 2e-4F, nullptr},
                                         FamilyGolden{"qwen3", 2e-4F, "qwen3.f32.gguf"},
                                         FamilyGolden{"qwen3_next", 1e-3F, "qwen3_next.f16.gguf"},
                                         FamilyGolden{"qwen3_5", 1e-3F, "qwen3_5.f16.gguf"}),
                         [](const auto& tested) { return std::string(tested.param.name); });
// Families whose larger checkpoints are in the second set of fixtures alone.
INSTANTIATE_TEST_SUITE_P(
    SecondSet, FamilyTest,
    testing::Values(FamilyGolden{"cohere", 2e-4F, nullptr},
                    FamilyGolden{"cohere2", 2e-4F, "cohere2.f16.gguf"}, FamilyGolden{"gemma", 2e-4F, nullptr},
                    FamilyGolden{"hy_v3", 2e-4F, nullptr}, FamilyGolden{"mellum", 2e-4F, nullptr},
                    FamilyGolden{"olmo", 2e-4F, nullptr}, FamilyGolden{"phi", 2e-4F, nullptr},
                    FamilyGolden{"stablelm", 2e-4F, nullptr}, FamilyGolden{"olmo2", 2e-4F, "olmo2.f16.gguf"},
                    FamilyGolden{"phi3", 2e-4F, "phi3.f16.gguf"},
                    FamilyGolden{"phi3_long", 2e-4F, "phi3_long.f16.gguf"},
                    FamilyGolden{"smollm3", 2e-4F, "smollm3.f16.gguf"}),
    [](const auto& tested) { return std::string(tested.param.name); });
// Wider rows, as the quantized types want them; too large for tests/data.
INSTANTIATE_TEST_SUITE_P(Fixtures, FamilyTest,
                         testing::Values(FamilyGolden{"lfm2_k256", 2e-4F, "lfm2_k256.f16.gguf"},
                                         FamilyGolden{"llama_k256", 2e-4F, "llama_k256.f16.gguf"}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Mixtures of experts and latent attention.
INSTANTIATE_TEST_SUITE_P(Mixtures, FamilyTest,
                         testing::Values(FamilyGolden{"deepseek_v3", 2e-4F, "deepseek_v3.f16.gguf"},
                                         FamilyGolden{"deepseek_v3_noqlora", 2e-4F, nullptr},
                                         FamilyGolden{"glm4_moe", 2e-4F, "glm4_moe.f16.gguf"},
                                         FamilyGolden{"gpt_oss", 2e-4F, nullptr},
                                         FamilyGolden{"qwen3_moe", 2e-4F, "qwen3_moe.f16.gguf"}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// State-space layers alone, beside attention, and between experts.
INSTANTIATE_TEST_SUITE_P(Hybrids, FamilyTest,
                         testing::Values(FamilyGolden{"bamba", 2e-4F, nullptr},
                                         FamilyGolden{"falcon_h1", 2e-4F, "falcon_h1.f32.gguf"},
                                         FamilyGolden{"granitemoehybrid", 2e-4F, "granitemoehybrid.f16.gguf"},
                                         FamilyGolden{"granitemoehybrid_dense", 2e-4F,
                                                      "granitemoehybrid_dense.f16.gguf"},
                                         FamilyGolden{"jamba", 2e-4F, "jamba.f16.gguf"},
                                         FamilyGolden{"mamba2", 2e-4F, "mamba2.f16.gguf"},
                                         FamilyGolden{"mamba2_dtlimit", 2e-4F, nullptr},
                                         FamilyGolden{"nemotron_h", 2e-4F, "nemotron_h.f16.gguf"},
                                         FamilyGolden{"nemotron_h_moe", 2e-4F, "nemotron_h_moe.f16.gguf"}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Families whose checkpoints are in the third set of fixtures alone.
constexpr FamilyGolden kThirdSet[] = {
    {"afmoe", 2e-4F, "afmoe.f16.gguf"},
    {"bailing_hybrid", 1e-3F, "bailing_hybrid.f16.gguf"},
    {"bitnet", 2e-4F, nullptr},
    {"cohere2_moe", 2e-4F, "cohere2_moe.f16.gguf"},
    {"deepseek_v32", 2e-4F, "deepseek_v32.f16.gguf"},
    {"deepseek_v4", 2e-4F, nullptr},
    {"deepseek_v4_128", 2e-4F, "deepseek_v4_128.f16.gguf"},
    {"falcon40", 2e-4F, "falcon40.f16.gguf"},
    {"falcon7", 2e-4F, nullptr},
    {"gemma3n", 2e-4F, nullptr},
    {"gemma4_unified", 2e-4F, "gemma4_unified.f16.gguf"},
    {"glm_moe_dsa", 2e-4F, "glm_moe_dsa.f16.gguf"},
    {"gpt2", 2e-4F, "gpt2.f16.gguf"},
    {"gpt_bigcode", 2e-4F, "gpt_bigcode.f16.gguf"},
    {"gpt_neox", 2e-4F, "gpt_neox.f16.gguf"},
    {"granite_swa", 2e-4F, "granite_swa.f16.gguf"},
    {"granitemoe_swa", 2e-4F, "granitemoe_swa.f16.gguf"},
    {"hy_v4", 2e-4F, nullptr},
    {"laguna", 2e-4F, "laguna.f16.gguf"},
    {"longcat_flash", 2e-4F, nullptr},
    {"mimo_v2", 2e-4F, "mimo_v2.f16.gguf"},
    {"minicpm3", 2e-4F, nullptr},
    {"minimax_m3", 2e-4F, "minimax_m3.f16.gguf"},
    {"qwen4_exp", 1e-3F, "qwen4_exp.f16.gguf"},
    {"qwen4_exp_2ple", 1e-3F, nullptr},
    {"nanochat", 2e-4F, nullptr},
};
INSTANTIATE_TEST_SUITE_P(ThirdSet, FamilyTest, testing::ValuesIn(kThirdSet),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Experts in MXFP4: in float32, and with activations rounded to int8 bit-identical however a prompt is cut.
TEST(Golden, GptOssInMxfp4) {
  QUIRE_FIND_OR_SKIP(directory, fs::path("models") / "gpt_oss_mxfp4");
  const auto golden = ReadGolden(directory);
  ASSERT_TRUE(golden) << golden.error().message;
  const fs::path packed = fs::path(testing::TempDir()) / "quire-packed-gpt-oss";
  fs::remove(packed);
  const auto written = weights::PackHuggingFace(directory, packed);
  ASSERT_TRUE(written) << written.error().message;
  for (const fs::path& model : {directory, packed, test_data::Find("gguf/gpt_oss_mxfp4.f16.gguf")}) {
    SCOPED_TRACE(model);
    kernels::LimitPanelTarget(kernels::PanelTarget::kNone);
    ExpectGolden(model, golden, 2e-4F);
    kernels::LimitPanelTarget(kernels::kNoPanelLimit);
    ThreadPool pool(2);
    auto run = GoldenRun::Open(model, pool, 1, 256);
    ASSERT_TRUE(run) << run.error().message;
    const Comparison rounded =
        Compare(*run, *golden, {.tolerance = 100, .chunks = {1, 7, 64}, .restore_every_offset = true});
    EXPECT_TRUE(rounded.bit_identical) << testing::PrintToString(rounded.lines);
  }
  fs::remove(packed);
}

// transformers rotates halves, llama.cpp neighbors: the file has goldens of its own.
TEST(Golden, HyV4AsGguf) {
  QUIRE_FIND_OR_SKIP(directory, fs::path("models") / "hy_v4_pairs");
  ExpectGolden(test_data::Find("gguf/hy_v4_pairs.f16.gguf"), ReadGolden(directory), 2e-4F);
}

TEST(Golden, AssistantDraftsWhatItsReferenceDrafted) {
  const fs::path directory = "tests/data/models/gemma4_assistant", target = "tests/data/models/gemma4_e";
  ASSERT_TRUE(IsDraftGolden(directory));
  const auto golden = ReadDraftGolden(directory);
  ASSERT_TRUE(golden) << golden.error().message;
  ThreadPool pool(2);
  const auto compare = [&](const fs::path& model) {
    SCOPED_TRACE(model);
    const auto result = CompareDrafts(model, target, *golden, pool);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_TRUE(result->pass(2e-4F)) << testing::PrintToString(result->lines);
    EXPECT_EQ(result->lines.size(), 6U) << "four prompts, two of them inside the target's window";
  };
  compare(directory);
  const auto other = CompareDrafts(directory, "tests/data/models/llama", *golden, pool);
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("the target has no matching KV cache"));
  EXPECT_THAT(models::LoadModel(weights::Open(directory).value()).error().message,
              HasSubstr("a draft model"));
  QUIRE_FIND_OR_SKIP(gguf, "gguf/gemma4_assistant.f16.gguf");
  compare(gguf);
}

TEST(Golden, AnotherModelsGoldensFail) {
  ThreadPool pool(1);
  auto run = GoldenRun::Open(kLfm2, pool, 1, 256);
  ASSERT_TRUE(run) << run.error().message;
  const Comparison result = Compare(*run, ReadGolden("tests/data/models/llama").value(), {});
  EXPECT_FALSE(result.pass(2e-3F));
  EXPECT_THAT(result.Verdict(2e-3F), HasSubstr("golden: FAIL max_abs="));
}

TEST(Golden, BrokenFilesAreNamed) {
  const auto missing = ReadGolden("tests/data/gguf");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("tests/data/gguf/golden.json"));
  const auto no_type = ReadQuantGolden("tests/data/gguf/lfm2_k256.Q8_0.golden.json", "Q4_0");
  ASSERT_FALSE(no_type);
  EXPECT_THAT(no_type.error().message, HasSubstr("no prompts for the type Q4_0"));

  const fs::path broken = fs::path(testing::TempDir()) / "quire-broken-golden";
  fs::create_directories(broken);
  std::ofstream(broken / "golden.json") << R"({"vocab_size": 512, "prompts": [{"ids": [1, 2]}]})";
  fs::copy_file(fs::path(kLfm2) / "golden.safetensors", broken / "golden.safetensors",
                fs::copy_options::overwrite_existing);
  const auto other_ids = ReadGolden(broken);
  ASSERT_FALSE(other_ids);
  EXPECT_THAT(other_ids.error().message, HasSubstr("ids of prompt 0 differ"));
  fs::remove_all(broken);
}

// The bundled model's greedy answers, all prompts decoded together.
struct DemoResult {
  size_t equal = 0, total = 0;
  double widest_gap_of_a_difference = 0;  // between the reference's two best logits, where an answer differs
};

DemoResult RunDemo(const char* model) {
  const auto golden = nlohmann::json::parse(std::ifstream("tests/data/quire-demo.golden.json"));
  ThreadPool pool(2);
  auto run = GoldenRun::Open(model, pool, 64, 1024);
  EXPECT_TRUE(run) << run.error().message;
  DemoResult result;
  for (const char* kind : {"chat", "plain"}) {
    std::vector<std::vector<models::TokenId>> prompts;
    for (const auto& prompt : golden.at(kind)) prompts.push_back(prompt.at("prompt_ids"));
    const models::TokenId stop[] = {7, 2};  // <|im_end|>, <|endoftext|>
    const auto answers = run->Continue(prompts, stop, golden.at("max_new_tokens").at(kind));
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto& expected = golden.at(kind)[i];
      ++result.total;
      if (answers[i] == expected.at("completion_ids").get<std::vector<models::TokenId>>()) {
        ++result.equal;
      } else {
        result.widest_gap_of_a_difference =
            std::max(result.widest_gap_of_a_difference, expected.at("min_top2_gap").get<double>());
      }
    }
  }
  return result;
}

TEST(DemoModel, GivesTheReferencesAnswers) {
  for (const char* model : {"packaging/models/quire-demo", "packaging/models/quire-demo-F16.gguf"}) {
    const DemoResult result = RunDemo(model);
    EXPECT_EQ(result.total, 50U);
    EXPECT_EQ(result.equal, 50U) << model;
  }
}

// Quantized weights are other weights, and activations are rounded too: an answer may turn where the
// reference hesitates, and only there. Measured: 45, 0.034.
TEST(DemoModel, QuantizedPartsOnlyAtTies) {
  const DemoResult result = RunDemo("packaging/models/quire-demo-Q8_0.gguf");
  RecordProperty("equal", static_cast<int>(result.equal));
  EXPECT_GE(result.equal, 44U);
  EXPECT_LE(result.widest_gap_of_a_difference, 0.05);
}

}  // namespace
}  // namespace quire::runner::golden
