#include "runner/weights/quantize_on_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/weights/block_formats.h"
#include "runner/weights/gguf_writer.h"
#include "runner/weights/quantize.h"
#include "runner/weights/testing/hostile_files.h"
#include "tests/data/test_data.h"

namespace quire::runner::weights {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::shared_ptr<const ModelFiles> Quantized(const fs::path& path, std::string_view name, int threads = 2) {
  auto files = QuantizeOnLoad(Open(path).value(), name, threads);
  EXPECT_TRUE(files) << files.error().message;
  return files.value_or(nullptr);
}

DataType TypeOf(const ModelFiles& files, std::string_view name) {
  const Tensor* tensor = files.Find(name);
  EXPECT_NE(tensor, nullptr) << name;
  return tensor == nullptr ? DataType::kF32 : tensor->type;
}

std::vector<float> TensorAsFloat32(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  Dequantize(tensor.type, tensor.data.data(), tensor.elements(), values.data());
  return values;
}

double LoadedError(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  return sum;
}

TEST(QuantizeOnLoad, MatricesBecomeBlocksAndTheRestStays) {
  constexpr const char* kModel = "tests/data/models/lfm2";
  const auto original = Open(kModel).value();
  const auto files = QuantizeOnLoad(original, "q8_0", 2).value();
  ASSERT_EQ(files->tensors().size(), original->tensors().size());
  EXPECT_EQ(files->path(), original->path());
  EXPECT_EQ(files->config(), original->config());
  int changed = 0;
  for (const Tensor& tensor : files->tensors()) {
    const Tensor& source = *original->Find(tensor.name);
    EXPECT_EQ(tensor.shape, source.shape);
    EXPECT_EQ(tensor.data.size(),
              static_cast<size_t>(tensor.rows()) * RowBytes(tensor.type, tensor.columns()));
    const bool stays = tensor.shape.size() < 2 || tensor.name.find("conv.conv") != std::string::npos;
    EXPECT_EQ(tensor.type, stays ? source.type : DataType::kQ8_0) << tensor.name;
    if (stays) {
      EXPECT_EQ(tensor.data.data(), source.data.data()) << "what stays is not copied";
      continue;
    }
    ++changed;
    std::vector<std::byte> expected(tensor.data.size());
    Quantize(DataType::kQ8_0, TensorAsFloat32(source), expected.data());
    EXPECT_TRUE(std::ranges::equal(tensor.data, expected)) << tensor.name;
  }
  EXPECT_GT(changed, 20);
}

TEST(QuantizeOnLoad, RowsThatAreNoWholeBlocksGetSmallerOnes) {
  // Rows of 64: no blocks of 256.
  const auto files = Quantized("tests/data/models/lfm2", "Q4_K");
  EXPECT_EQ(TypeOf(*files, "model.layers.2.self_attn.q_proj.weight"), DataType::kQ8_0);
  EXPECT_EQ(TypeOf(*Quantized("tests/data/models/lfm2", "Q4_0"), "model.layers.2.self_attn.q_proj.weight"),
            DataType::kQ4_0);
}

TEST(QuantizeOnLoad, WhatIsInBlocksAlreadyStays) {
  constexpr const char* kModel = "tests/data/gguf/lfm2_k256.Q8_0.gguf";
  const auto original = Open(kModel).value();
  const auto files = Quantized(kModel, "Q4_0");
  for (const Tensor& tensor : files->tensors()) {
    EXPECT_EQ(tensor.type, original->Find(tensor.name)->type) << tensor.name;
  }
}

TEST(QuantizeOnLoad, VisionTowersKeepEightBitsAndTheirPlaces) {
  GgufWriter writer;
  writer.AddText("general.architecture", "gemma3");
  const std::vector<std::pair<const char*, DataType>> tensors = {
      {"blk.0.attn_q.weight", DataType::kQ4_0},
      {"v.blk.0.attn_q.weight", DataType::kQ8_0},
      {"mm.0.weight", DataType::kQ8_0},
      {"v.patch_embd.weight", DataType::kF32},
      {"v.position_embd.weight", DataType::kF32},
      {"visual.merger.mlp.0.weight", DataType::kQ8_0},
      {"visual.pos_embed.weight", DataType::kF32},
      {"vision_tower.patch_conv.weight", DataType::kF32}};
  for (const auto& [name, type] : tensors) writer.AddTensor(name, DataType::kF32, {4, 32});
  const testing::TemporaryDirectory directory;
  const fs::path path = directory.path() / "a.gguf";
  ASSERT_TRUE(writer.Write(path, [](size_t, int64_t, int64_t, std::span<std::byte> data) {
    std::ranges::fill(data, std::byte{});
  }));
  const auto files = Quantized(path, "q4_0");
  ASSERT_NE(files, nullptr);
  for (const auto& [name, type] : tensors) EXPECT_EQ(TypeOf(*files, name), type) << name;
}

TEST(QuantizeOnLoad, AnUnknownTypeIsRefusedWithThoseThatAre) {
  for (const char* name : {"", "Q5_K", "Q4_K_M", "F16", "q8"}) {
    const auto files = QuantizeOnLoad(Open("tests/data/models/lfm2").value(), name, 1);
    ASSERT_FALSE(files) << name;
    EXPECT_EQ(files.error().code, api::ErrorCode::kInvalidArgument);
    EXPECT_THAT(files.error().message, HasSubstr("Q8_0, Q6_K, Q4_K, Q4_0"));
  }
}

// From a GGUF file and from the directory it was made of: no matrix may come out worse than llama-quantize's
// of the same type.
TEST(QuantizeOnLoadFixtures, ErrsNoMoreThanLlamaQuantize) {
  QUIRE_FIND_OR_SKIP(source_path, "gguf/lfm2_k256.f16.gguf");
  QUIRE_FIND_OR_SKIP(quantized_folder, "gguf_quant");
  const auto floats = Open(source_path).value();
  const std::map<std::string, std::string> presets = {
      {"Q8_0", "Q8_0"}, {"Q6_K", "Q6_K"}, {"Q4_K", "Q4_K_M"}, {"Q4_0", "Q4_0"}};
  for (const auto& [type, preset] : presets) {
    const auto ours = Quantized(source_path, type);
    const auto theirs = Open(quantized_folder / ("lfm2_k256." + preset + ".gguf")).value();
    int compared = 0;
    for (const Tensor& reference : theirs->tensors()) {
      const Tensor* tensor = ours->Find(reference.name);
      ASSERT_NE(tensor, nullptr) << reference.name;
      if (tensor->type != reference.type || BlockElements(tensor->type) == 1) continue;
      const auto source = TensorAsFloat32(*floats->Find(reference.name));
      EXPECT_LE(LoadedError(source, TensorAsFloat32(*tensor)),
                LoadedError(source, TensorAsFloat32(reference)))
          << type << " " << reference.name;
      ++compared;
    }
    EXPECT_GE(compared, 10) << type;
  }
}

TEST(QuantizeOnLoadFixtures, EveryFamilyKeepsItsSensitiveParts) {
  const auto stays = [](const fs::path& model, const std::vector<const char*>& names) {
    const auto original = Open(model).value();
    const auto files = Quantized(model, "Q8_0");
    for (const char* name : names) EXPECT_EQ(TypeOf(*files, name), TypeOf(*original, name)) << model << name;
    const auto blocks = std::ranges::count(files->tensors(), DataType::kQ8_0, &Tensor::type);
    EXPECT_GT(blocks, 5) << model;
  };
  stays("tests/data/models/lfm2_moe", {"model.layers.2.feed_forward.gate.weight"});
  stays("tests/data/models/qwen3_next",
        {"model.layers.0.mlp.gate.weight", "model.layers.0.mlp.shared_expert_gate.weight",
         "model.layers.0.linear_attn.conv1d.weight", "model.layers.0.linear_attn.in_proj_ba.weight"});
  stays("tests/data/models/gemma4_moe", {"model.layers.0.router.proj.weight"});
}

}  // namespace
}  // namespace quire::runner::weights
