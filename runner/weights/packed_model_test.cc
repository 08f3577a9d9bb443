#include "runner/weights/packed_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/weights/gguf_writer.h"
#include "runner/weights/quantize_model.h"
#include "tests/data/test_data.h"

namespace quire::runner::weights {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kDemo = "packaging/models/quire-demo";

class PackedModelTest : public ::testing::Test {
 protected:
  PackedModelTest() {
    std::string name = (fs::temp_directory_path() / "quire-packed-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~PackedModelTest() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(PackedModelTest, IsTheDirectoryAgain) {
  ASSERT_TRUE(PackHuggingFace(kDemo, folder_ / "m.gguf"));
  const auto before = Open(kDemo);
  const auto after = Open(folder_ / "m.gguf");
  ASSERT_TRUE(before) << before.error().message;
  ASSERT_TRUE(after) << after.error().message;
  EXPECT_EQ((*after)->format(), Format::kHuggingFace);
  EXPECT_EQ((*after)->architecture(), (*before)->architecture());
  EXPECT_EQ((*after)->config(), (*before)->config());
  EXPECT_EQ((*after)->generation_config(), (*before)->generation_config());
  EXPECT_EQ((*after)->tokenizer_config(), (*before)->tokenizer_config());
  EXPECT_EQ((*after)->tokenizer_json(), (*before)->tokenizer_json());
  EXPECT_EQ((*after)->chat_template(), (*before)->chat_template());
  EXPECT_EQ((*after)->end_of_generation_ids(), (*before)->end_of_generation_ids());
  ASSERT_EQ((*after)->tensors().size(), (*before)->tensors().size());
  for (const Tensor& tensor : (*before)->tensors()) {
    const Tensor* packed = (*after)->Find(tensor.name);
    ASSERT_NE(packed, nullptr) << tensor.name;
    EXPECT_EQ(packed->type, tensor.type);
    EXPECT_EQ(packed->shape, tensor.shape);
    EXPECT_TRUE(std::ranges::equal(packed->data, tensor.data)) << tensor.name;
  }
}

TEST_F(PackedModelTest, KnowsHowImagesArePrepared) {
  const fs::path directory = folder_ / "model";
  fs::copy(kDemo, directory);
  std::ofstream(directory / "preprocessor_config.json") << R"({"patch_size":16})";
  ASSERT_TRUE(PackHuggingFace(directory, folder_ / "m.gguf"));
  const auto packed = Open(folder_ / "m.gguf");
  ASSERT_TRUE(packed) << packed.error().message;
  EXPECT_EQ((*packed)->processor_config().value(), R"({"image_processor":{"patch_size":16}})");
  std::ofstream(directory / "preprocessor_config.json") << "{";
  EXPECT_FALSE(PackHuggingFace(directory, folder_ / "other.gguf"));
}

TEST_F(PackedModelTest, IsQuantized) {
  ASSERT_TRUE(PackHuggingFace(kDemo, folder_ / "m.gguf"));
  const auto done = QuantizeGguf(folder_ / "m.gguf", "Q8_0", folder_ / "q.gguf", 1);
  ASSERT_TRUE(done) << done.error().message;
  const auto files = Open(folder_ / "q.gguf");
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ((*files)->format(), Format::kHuggingFace);
  EXPECT_LT(fs::file_size(folder_ / "q.gguf"), fs::file_size(folder_ / "m.gguf"));
}

// A draft model's order of tokens, which is no weight.
TEST_F(PackedModelTest, IntegersSurvivePackingQuantizingAndCopying) {
  constexpr const char* kAssistant = "tests/data/models/gemma4_assistant";
  constexpr const char* kOrder = "masked_embedding.token_ordering";
  const auto before = Open(kAssistant);
  ASSERT_TRUE(before) << before.error().message;
  const auto order = (*before)->Integers(kOrder);
  ASSERT_TRUE(order);
  ASSERT_TRUE(PackHuggingFace(kAssistant, folder_ / "m.gguf"));
  ASSERT_TRUE(QuantizeGguf(folder_ / "m.gguf", "Q8_0", folder_ / "q.gguf", 1));
  ASSERT_TRUE(QuantizeGguf(folder_ / "q.gguf", "", folder_ / "c.gguf", 1));
  for (const char* name : {"m.gguf", "q.gguf", "c.gguf"}) {
    const auto after = Open(folder_ / name);
    ASSERT_TRUE(after) << after.error().message;
    EXPECT_EQ((*after)->Integers(kOrder), order) << name;
    EXPECT_EQ((*after)->Find(kOrder), nullptr) << name;
    EXPECT_EQ((*after)->tensors().size(), (*before)->tensors().size()) << name;
  }
}

// DeepSeek V4's table of experts by token, which a GGUF file has as I32.
TEST_F(PackedModelTest, IntegersOf32BitsSurviveQuantizingAndCopying) {
  QUIRE_FIND_OR_SKIP(gguf, "gguf/deepseek_v4_128.f16.gguf");
  constexpr const char* kTable = "blk.0.ffn_gate_tid2eid.weight";
  const auto before = Open(gguf);
  ASSERT_TRUE(before) << before.error().message;
  const auto table = (*before)->Integers(kTable);
  ASSERT_TRUE(table);
  EXPECT_EQ(table->size(), 1024U);
  EXPECT_EQ(*std::ranges::max_element(*table), 7);
  ASSERT_TRUE(QuantizeGguf(gguf, "Q8_0", folder_ / "q.gguf", 1));
  ASSERT_TRUE(QuantizeGguf(folder_ / "q.gguf", "", folder_ / "c.gguf", 1));
  for (const char* name : {"q.gguf", "c.gguf"}) {
    const auto after = Open(folder_ / name);
    ASSERT_TRUE(after) << after.error().message;
    EXPECT_EQ((*after)->Integers(kTable), table) << name;
    EXPECT_EQ((*after)->Find("blk.1.attn_compressor_ape.weight")->type, DataType::kF32) << name;
  }
}

TEST_F(PackedModelTest, BrokenOnesAreRefused) {
  const auto refused = [&](const std::function<void(GgufWriter&)>& fill) {
    fs::remove(folder_ / "x.gguf");
    GgufWriter writer;
    fill(writer);
    EXPECT_TRUE(writer.Write(folder_ / "x.gguf", {}));
    const auto files = Open(folder_ / "x.gguf");
    return files ? "opened" : files.error().message;
  };
  EXPECT_THAT(refused([](GgufWriter& w) {
                w.AddText("general.architecture", "lfm2");
                w.AddText("quire.huggingface.config", "{");
              }),
              HasSubstr("quire.huggingface.config"));
  EXPECT_THAT(refused([](GgufWriter& w) {
                w.AddText("general.architecture", "lfm2");
                w.AddText("quire.huggingface.config", "[]");
              }),
              HasSubstr("not a JSON object"));
  EXPECT_THAT(refused([](GgufWriter& w) {
                w.AddText("general.architecture", "lfm2");
                w.AddText("quire.huggingface.config", R"({"model_type":"llama"})");
              }),
              HasSubstr("model_type"));
  EXPECT_FALSE(PackHuggingFace(folder_, folder_ / "y.gguf"));
}

}  // namespace
}  // namespace quire::runner::weights
