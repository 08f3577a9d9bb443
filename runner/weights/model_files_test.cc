// Opens whole models: the ones in tests/data, the bundled ones, and the shared fixtures where they are at
// hand.
#include "runner/weights/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "runner/weights/testing/hostile_files.h"
#include "tests/data/test_data.h"

namespace quire::runner::weights {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

TEST(OpenModel, ReadsAHuggingFaceDirectory) {
  const auto files = Open("tests/data/models/lfm2");
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ((*files)->format(), Format::kHuggingFace);
  EXPECT_EQ((*files)->path(), "tests/data/models/lfm2");
  EXPECT_EQ((*files)->architecture(), "lfm2");
  EXPECT_EQ((*files)->config().at("hidden_size"), 64);
  EXPECT_EQ((*files)->generation_config().at("pad_token_id"), 0);
  EXPECT_EQ((*files)->tokenizer_config().at("eos_token"), "<|im_end|>");
  EXPECT_THAT((*files)->tokenizer_json(), HasSubstr("added_tokens"));
  EXPECT_THAT((*files)->chat_template(), HasSubstr("<|im_start|>"));
  EXPECT_THAT((*files)->end_of_generation_ids(), ElementsAre(2, 7));

  const Tensor* embedding = (*files)->Find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->type, DataType::kBF16);
  EXPECT_THAT(embedding->shape, ElementsAre(512, 64));
  EXPECT_EQ(embedding->data.size(), 512U * 64 * 2);
  EXPECT_EQ((*files)->Find("model.embed_tokens"), nullptr);
}

TEST(OpenModel, ReadsAGgufFile) {
  const auto files = Open("tests/data/gguf/lfm2.f16.gguf");
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ((*files)->format(), Format::kGguf);
  EXPECT_EQ((*files)->architecture(), "lfm2");
  EXPECT_EQ((*files)->config().at("lfm2.block_count"), 6);
  EXPECT_EQ((*files)->config().at("lfm2.attention.layer_norm_rms_epsilon"), 1e-5);
  EXPECT_EQ((*files)->config().at("lfm2.attention.head_count_kv"),
            nlohmann::ordered_json::array({0, 0, 2, 0, 2, 0}));
  EXPECT_EQ((*files)->config().at("tokenizer.ggml.add_bos_token"), true);
  EXPECT_TRUE((*files)->generation_config().is_null());
  EXPECT_TRUE((*files)->tokenizer_config().is_null());
  EXPECT_EQ((*files)->tokenizer_json(), "");
  EXPECT_THAT((*files)->chat_template(), HasSubstr("<|im_start|>"));
  EXPECT_THAT((*files)->end_of_generation_ids(), ElementsAre(7));

  const Tensor* in_proj = (*files)->Find("blk.0.shortconv.in_proj.weight");
  ASSERT_NE(in_proj, nullptr);
  EXPECT_EQ(in_proj->type, DataType::kF16);
  EXPECT_THAT(in_proj->shape, ElementsAre(192, 64));
  EXPECT_EQ(in_proj->rows(), 192);
  EXPECT_EQ(in_proj->columns(), 64);
}

TEST(OpenModel, BothFormatsHoldTheSameEmbedding) {
  QUIRE_FIND_OR_SKIP(path, "gguf/lfm2.bf16.gguf");
  const auto gguf = Open(path);
  const auto hugging_face = Open("tests/data/models/lfm2");
  ASSERT_TRUE(gguf && hugging_face);
  const Tensor* from_gguf = (*gguf)->Find("token_embd.weight");
  const Tensor* from_hugging_face = (*hugging_face)->Find("model.embed_tokens.weight");
  ASSERT_TRUE(from_gguf != nullptr && from_hugging_face != nullptr);
  EXPECT_EQ(from_gguf->type, from_hugging_face->type);
  EXPECT_EQ(from_gguf->shape, from_hugging_face->shape);
  EXPECT_TRUE(std::ranges::equal(from_gguf->data, from_hugging_face->data));
}

TEST(OpenModel, ReadsQ8_0) {
  const auto files = Open("tests/data/gguf/lfm2_k256.Q8_0.gguf");
  ASSERT_TRUE(files) << files.error().message;
  const Tensor* down = (*files)->Find("blk.0.ffn_down.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->type, DataType::kQ8_0);
  EXPECT_EQ(down->data.size(),
            static_cast<size_t>(down->rows()) * RowBytes(DataType::kQ8_0, down->columns()));
}

TEST(OpenModel, ReadsTheBundledModels) {
  for (const char* path : {"packaging/models/quire-demo", "packaging/models/quire-demo-draft",
                           "packaging/models/quire-demo-F16.gguf", "packaging/models/quire-demo-Q8_0.gguf",
                           "packaging/models/quire-demo-draft-Q8_0.gguf"}) {
    const auto files = Open(path);
    ASSERT_TRUE(files) << files.error().message;
    EXPECT_EQ((*files)->architecture(), "lfm2") << path;
    EXPECT_THAT((*files)->chat_template(), HasSubstr("keep_past_thinking")) << path;
    EXPECT_THAT((*files)->end_of_generation_ids(), ::testing::Contains(7)) << path;
  }
}

TEST(OpenModel, SaysWhatIsMissing) {
  const auto absent = Open("tests/data/models/nowhere");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, api::ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("tests/data/models/nowhere: "));

  const auto no_config = Open("tests/data/gguf");
  ASSERT_FALSE(no_config);
  EXPECT_EQ(no_config.error().code, api::ErrorCode::kBadModel);
  EXPECT_EQ(no_config.error().message, "tests/data/gguf/config.json: no such file");

  const auto device = Open("/dev/zero");
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, api::ErrorCode::kBadModel);
  EXPECT_EQ(device.error().message, "/dev/zero: not a regular file");
}

// Files of interrupted or misdirected downloads: one error that names file and reason, and the
// tensor where it is a tensor that is not all there.
TEST(OpenModel, NamesWhatADownloadLeft) {
  const testing::TemporaryDirectory directory;
  const auto refusal = [](const fs::path& path) {
    const auto files = Open(path);
    EXPECT_FALSE(files) << path;
    if (files) return std::string();
    EXPECT_EQ(files.error().code, api::ErrorCode::kBadModel);
    return files.error().message;
  };
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n";
  EXPECT_THAT(refusal(directory.Write("a.gguf", pointer)), HasSubstr("a.gguf: a Git LFS pointer"));
  EXPECT_THAT(refusal(directory.Write("a.gguf", "\n<!DOCTYPE html><html>")), HasSubstr("a.gguf: a web page"));
  EXPECT_THAT(refusal(directory.Write("a.gguf", "")), HasSubstr("a.gguf: empty"));

  // Cut anywhere in its data, the message names the tensor that ends beyond; cut in its header, the header.
  const std::string whole = testing::SmallGguf().bytes();
  EXPECT_THAT(refusal(directory.Write("a.gguf", whole.substr(0, whole.size() - 1))),
              HasSubstr("a.gguf: tensor \"b.weight\" of 68 bytes at offset 64 ends beyond"));
  EXPECT_THAT(refusal(directory.Write("a.gguf", whole.substr(0, 20))),
              HasSubstr("a.gguf: the file ends inside"));

  const fs::path model = directory.path() / "m";
  fs::create_directory(model);
  directory.Write("m/config.json", R"({"model_type":"tiny"})");
  EXPECT_THAT(refusal(model), HasSubstr("neither model.safetensors nor model.safetensors.index.json"));
  const std::string tensors = testing::SmallSafetensors().bytes();
  directory.Write("m/model.safetensors", tensors.substr(0, tensors.size() - 1));
  EXPECT_THAT(refusal(model),
              HasSubstr("model.safetensors: tensor \"c\" has data_offsets [32, 40], but there are 39"));
  directory.Write("m/model.safetensors", pointer);
  EXPECT_THAT(refusal(model), HasSubstr("model.safetensors: a Git LFS pointer"));
  directory.Write("m/model.safetensors", tensors);
  EXPECT_TRUE(Open(model));
  for (const char* name :
       {"tokenizer.json", "generation_config.json", "tokenizer_config.json", "config.json"}) {
    directory.Write(std::string("m/") + name, pointer);
    EXPECT_THAT(refusal(model), HasSubstr(std::string(name) + ": a Git LFS pointer"));
    fs::remove(model / name);
  }
}

// ---- every model of the test data ----

TEST(TestData, EveryUnquantizedGgufOpens) {
  int opened = 0;
  for (const fs::path& path : test_data::List("gguf")) {
    if (path.extension() != ".gguf") continue;
    const auto files = Open(path);
    ASSERT_TRUE(files) << files.error().message;
    EXPECT_FALSE((*files)->tensors().empty());
    EXPECT_FALSE((*files)->chat_template().empty());
    ++opened;
  }
  EXPECT_GT(opened, 0);
}

TEST(TestData, EveryQuantizedGgufOpens) {
  QUIRE_FIND_OR_SKIP(folder, "gguf_quant");
  std::set<DataType> types;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const auto files = Open(entry.path());
    ASSERT_TRUE(files) << files.error().message;
    for (const Tensor& tensor : (*files)->tensors()) types.insert(tensor.type);
  }
  EXPECT_GE(types.size(), 12U);
}

TEST(TestData, EveryCheckpointOpensAndEndsWhereItsGoldenSays) {
  int opened = 0;
  for (const fs::path& path : test_data::List("models")) {
    const auto files = Open(path);
    ASSERT_TRUE(files) << files.error().message;
    std::ifstream stream(path / "golden.json");
    const auto golden = nlohmann::json::parse(stream);
    if (golden.contains("eog_ids")) {
      EXPECT_THAT((*files)->end_of_generation_ids(),
                  UnorderedElementsAreArray(golden.at("eog_ids").get<std::vector<int32_t>>()))
          << path;
    }
    ++opened;
  }
  EXPECT_GT(opened, 0);
}

TEST(TestData, GgufHasTheTemplateOfItsCheckpoint) {
  for (const fs::path& path : test_data::List("gguf")) {
    if (path.extension() != ".gguf") continue;
    const std::string family = path.stem().stem().string();
    const fs::path directory = test_data::Find("models/" + family);
    if (directory.empty()) continue;
    const auto gguf = Open(path);
    const auto checkpoint = Open(directory);
    ASSERT_TRUE(gguf && checkpoint) << family;
    EXPECT_EQ((*gguf)->chat_template(), (*checkpoint)->chat_template()) << family;
  }
}

TEST(TestData, VocabulariesOpenWithoutTensors) {
  QUIRE_FIND_OR_SKIP(folder, "tokenizers");
  int opened = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const auto files = Open(entry.path());
    ASSERT_TRUE(files) << files.error().message;
    EXPECT_TRUE((*files)->tensors().empty());
    EXPECT_TRUE((*files)->config().contains("tokenizer.ggml.tokens"));
    ++opened;
  }
  EXPECT_GT(opened, 0);
}

}  // namespace
}  // namespace quire::runner::weights
