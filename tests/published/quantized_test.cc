// Checkpoints that other tools quantized: the logits of a model whose weights are the same numbers as floats,
// and those of its copy in a store. quantize_checkpoint.py writes both directories.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runner/models/testing/patched_model_files.h"
#include "runner/weights/model_files.h"
#include "runner/weights/packed_model.h"
#include "runner/weights/quantized_checkpoint.h"
#include "runner/weights/testing/hostile_files.h"
#include "tests/data/test_data.h"

namespace quire::runner {
namespace {

struct Checkpoint {
  const char* name;
  const char* method;
  double difference;           // of logits, as a share of the largest
  std::string directory = {};  // in the fixtures; empty: Llama
};

class Quantized : public ::testing::TestWithParam<Checkpoint> {};

std::vector<float> LogitsOf(const std::filesystem::path& path) {
  auto files = weights::Open(path);
  EXPECT_TRUE(files) << files.error().message;
  if (!files) return {};
  auto converted = weights::ConvertCheckpoint(*std::move(files), 2);
  EXPECT_TRUE(converted) << converted.error().message;
  if (!converted) return {};
  auto model = models::LoadModel(*std::move(converted), api::kDefaultKvType);
  EXPECT_TRUE(model) << model.error().message;
  return model ? models::test::LastLogits(**model) : std::vector<float>();
}

TEST_P(Quantized, ComputesWithTheNumbersOfTheCheckpoint) {
  std::string model = "tests/data/models/llama";
  if (!GetParam().directory.empty()) {
    QUIRE_FIND_OR_SKIP(path, GetParam().directory + "/config.json");
    model = path.parent_path().string();
  }
  const weights::testing::TemporaryDirectory folder;
  const auto quantized = folder.path() / "quantized", plain = folder.path() / "plain";
  const std::string command = std::string("python3 tests/published/quantize_checkpoint.py ") +
                              GetParam().method + " " + model + " " + quantized.string() + " " +
                              plain.string();
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::vector<float> expected = LogitsOf(plain), logits = LogitsOf(quantized);
  ASSERT_FALSE(expected.empty());
  ASSERT_EQ(logits.size(), expected.size());
  double largest = 0, difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    difference =
        std::max(difference, std::abs(static_cast<double>(logits[i]) - static_cast<double>(expected[i])));
  }
  EXPECT_LE(difference, GetParam().difference * largest);
  RecordProperty("difference", std::to_string(difference / largest));
  const auto packed = weights::PackHuggingFace(quantized, folder.path() / "packed.gguf");
  ASSERT_TRUE(packed) << packed.error().message;
  EXPECT_EQ(LogitsOf(folder.path() / "packed.gguf"), logits);
}

// FP8 is exact here; codes of 4 and 8 bits are multiplied with activations of 8 bits.
INSTANTIATE_TEST_SUITE_P(
    Checkpoints, Quantized,
    ::testing::Values(Checkpoint{"fp8", "fp8", 0}, Checkpoint{"gptq", "gptq", 0.05},
                      Checkpoint{"gptq_order", "gptq_order", 0.005}, Checkpoint{"awq", "awq", 0.05},
                      Checkpoint{"w4a16", "w4a16", 0.05}, Checkpoint{"w8a8", "w8a8", 0.05},
                      Checkpoint{"fp8_deepseek", "fp8", 0, "models/deepseek_v3"},
                      Checkpoint{"gptq_deepseek", "gptq", 0.1, "models/deepseek_v3"},
                      Checkpoint{"fp8_qwen3_moe", "fp8", 0, "models/qwen3_moe"},
                      Checkpoint{"gptq_order_qwen3_moe", "gptq_order", 0.01, "models/qwen3_moe"}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace quire::runner
