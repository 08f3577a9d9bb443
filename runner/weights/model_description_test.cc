#include "runner/weights/model_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runner/weights/testing/hostile_files.h"
#include "tests/data/test_data.h"

namespace quire::runner::weights {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

api::ipc::Inspected DescribeFile(const std::filesystem::path& path, bool verbose = false) {
  const auto files = Open(path);
  EXPECT_TRUE(files) << files.error().message;
  return files ? Describe(**files, verbose) : api::ipc::Inspected();
}

TEST(Describe, ShowsAGgufAsOllamaDoes) {
  const auto described = DescribeFile("tests/data/gguf/lfm2.f16.gguf");
  EXPECT_FALSE(described.error);
  EXPECT_EQ(described.parameters, 272000);
  EXPECT_EQ(described.quantization, "F16");
  EXPECT_THAT(described.chat_template, HasSubstr("<|im_start|>"));

  const json info = json::parse(described.model_info_json);
  EXPECT_EQ(info.at("general.architecture"), "lfm2");
  EXPECT_EQ(info.at("general.parameter_count"), 272000);
  EXPECT_EQ(info.at("general.file_type"), 1);
  EXPECT_EQ(info.at("lfm2.context_length"), 2048);
  EXPECT_EQ(info.at("lfm2.attention.layer_norm_rms_epsilon").dump(), "1e-05");
  EXPECT_TRUE(info.at("tokenizer.ggml.tokens").is_null());
  EXPECT_FALSE(info.contains("general.name"));
  EXPECT_FALSE(info.contains("tokenizer.chat_template"));

  const json tensors = json::parse(described.tensors_json);
  const json in_proj = {{"name", "blk.0.shortconv.in_proj.weight"}, {"type", "F16"}, {"shape", {64, 192}}};
  EXPECT_THAT(tensors, ::testing::Contains(in_proj));
}

TEST(Describe, ShowsLargeArraysWhenVerbose) {
  const json info = json::parse(DescribeFile("tests/data/gguf/lfm2.f16.gguf", true).model_info_json);
  EXPECT_EQ(info.at("tokenizer.ggml.tokens").size(), 512U);
}

TEST(Describe, GivesAHuggingFaceDirectoryTheSameKeys) {
  QUIRE_FIND_OR_SKIP(path, "gguf/lfm2.bf16.gguf");
  const auto described = DescribeFile("tests/data/models/lfm2");
  EXPECT_EQ(described.parameters, 272000);
  EXPECT_EQ(described.quantization, "BF16");
  const json info = json::parse(described.model_info_json);
  const json gguf = json::parse(DescribeFile(path).model_info_json);
  for (const char* key : {"general.architecture", "general.parameter_count", "general.file_type",
                          "lfm2.block_count", "lfm2.context_length", "lfm2.embedding_length",
                          "lfm2.attention.head_count", "lfm2.attention.layer_norm_rms_epsilon",
                          "lfm2.rope.freq_base", "lfm2.shortconv.l_cache", "lfm2.vocab_size"}) {
    EXPECT_EQ(info.at(key), gguf.at(key)) << key;
  }
  EXPECT_EQ(info.at("lfm2.attention.head_count_kv"), 2);
}

TEST(Describe, CallsAFileWithoutFileTypeByItsMainTensorType) {
  const testing::TemporaryDirectory directory;
  const auto described = DescribeFile(directory.Write("x.gguf", testing::SmallGguf().bytes()), true);
  EXPECT_EQ(described.quantization, "Q8_0");
  EXPECT_EQ(described.parameters, 12 + 64);
  // A token that is no UTF-8 must not cost the answer.
  EXPECT_EQ(json::parse(described.model_info_json).at("texts").size(), 2U);
}

TEST(Describe, TakesAVocabulary) {
  testing::Image image;
  image.GgufHeader(0, 1).TextPair("general.architecture", "none");
  const testing::TemporaryDirectory directory;
  const auto described = DescribeFile(directory.Write("x.gguf", image.bytes()));
  EXPECT_EQ(described.parameters, 0);
  EXPECT_EQ(described.quantization, "");
  EXPECT_EQ(described.tensors_json, "[]");
}

}  // namespace
}  // namespace quire::runner::weights
