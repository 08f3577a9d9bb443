#include "runner/weights/quantize_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "runner/weights/gguf.h"
#include "runner/weights/gguf_writer.h"
#include "runner/weights/mapped_file.h"
#include "runner/weights/model_files.h"
#include "runner/weights/testing/hostile_files.h"
#include "tests/data/test_data.h"

namespace quire::runner::weights {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryDirectory;
namespace fs = std::filesystem;

TEST(GgufWriter, WritesWhatTheParserReads) {
  const testing::Image source = testing::SmallGguf();
  const auto original = ParseGguf(testing::AsBytes(source.bytes()), "x");
  ASSERT_TRUE(original);
  GgufWriter writer;
  for (const GgufPair& pair : original->pairs) writer.Add(pair.key, pair.typed_value);
  writer.AddUint32("more.number", 7);
  writer.AddText("more.text", "t");
  for (const Tensor& tensor : original->tensors) writer.AddTensor(tensor.name, tensor.type, tensor.shape);
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "y.gguf";
  const auto fill = [&](size_t tensor, int64_t first, int64_t rows, std::span<std::byte> data) {
    const Tensor& from = original->tensors[tensor];
    const size_t row_bytes = RowBytes(from.type, from.columns());
    ASSERT_EQ(data.size(), static_cast<size_t>(rows) * row_bytes);
    std::ranges::copy(from.data.subspan(static_cast<size_t>(first) * row_bytes, data.size()), data.begin());
  };
  for (const size_t piece_bytes : {size_t{1}, size_t{1} << 20}) {
    fs::remove(path);
    const auto written = writer.Write(path, fill, piece_bytes);
    ASSERT_TRUE(written) << written.error().message;
    const auto file = MappedFile::Open(path);
    ASSERT_TRUE(file);
    const auto copy = ParseGguf(file->bytes(), "y");
    ASSERT_TRUE(copy) << copy.error().message;
    nlohmann::ordered_json expected = *original->metadata;
    expected["more.number"] = 7;
    expected["more.text"] = "t";
    EXPECT_EQ(*copy->metadata, expected);
    ASSERT_EQ(copy->tensors.size(), original->tensors.size());
    for (size_t i = 0; i < copy->tensors.size(); ++i) {
      EXPECT_EQ(copy->tensors[i].shape, original->tensors[i].shape);
      EXPECT_TRUE(std::ranges::equal(copy->tensors[i].data, original->tensors[i].data));
    }
  }
  EXPECT_THAT(writer.Write(path, fill).error().message, HasSubstr("y.gguf: File exists"));
  EXPECT_TRUE(fs::exists(path));
  EXPECT_EQ(writer.Write(directory.path() / "no" / "z.gguf", fill).error().code, api::ErrorCode::kInternal);
}

// A file that may not grow stands for a disk that is full.
TEST(GgufWriter, LeavesNothingBehindWhenWritingFails) {
  GgufWriter writer;
  writer.AddTensor("t", DataType::kF32, {1000});
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "x.gguf";
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 256, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto written = writer.Write(path, [](size_t, int64_t, int64_t, std::span<std::byte>) {});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, api::ErrorCode::kInternal);
  EXPECT_THAT(written.error().message, HasSubstr("x.gguf: "));
  EXPECT_FALSE(fs::exists(path));
}

TEST(QuantizeGguf, GivesASmallerModelWithTheSameKeys) {
  const TemporaryDirectory directory;
  const fs::path small = directory.path() / "small.gguf";
  const auto done = QuantizeGguf("tests/data/gguf/lfm2.f16.gguf", "Q8_0", small, 2);
  ASSERT_TRUE(done) << done.error().message;
  const auto before = Open("tests/data/gguf/lfm2.f16.gguf"), after = Open(small);
  ASSERT_TRUE(after) << after.error().message;
  nlohmann::ordered_json expected = (*before)->config(), got = (*after)->config();
  EXPECT_EQ(got.at("general.file_type"), 7);
  for (auto* config : {&expected, &got}) {
    for (const char* key : {"general.file_type", "general.quantization_version"}) config->erase(key);
  }
  EXPECT_EQ(got, expected);
  ASSERT_EQ((*after)->tensors().size(), (*before)->tensors().size());
  EXPECT_EQ((*after)->Find("blk.0.ffn_down.weight")->type, DataType::kQ8_0);
  EXPECT_EQ((*after)->Find("blk.0.attn_norm.weight")->type, (*before)->Find("blk.0.attn_norm.weight")->type);
  EXPECT_LT(fs::file_size(small), fs::file_size("tests/data/gguf/lfm2.f16.gguf") * 6 / 10);
}

// RWKV's gates of low rank and its weights between a row and the one before it; vision towers.
TEST(QuantizeGguf, LeavesSmallMatricesAsTheyAre) {
  GgufWriter writer;
  writer.AddText("general.architecture", "rwkv7");
  const char* const kept[] = {
      "blk.0.time_mix_lerp_fused.weight", "blk.0.channel_mix_lerp_k.weight", "blk.0.time_mix_w1.weight",
      "blk.0.time_mix_a2.weight",         "blk.0.time_mix_v1.weight",        "blk.0.time_mix_v2.weight",
      "blk.0.time_mix_g2.weight",         "v.blk.0.attn_q.weight",           "mm.0.weight"};
  const char* const quantized[] = {"blk.0.time_mix_value.weight", "blk.0.time_mix_key.weight"};
  for (const char* name : kept) writer.AddTensor(name, DataType::kF32, {4, 32});
  for (const char* name : quantized) writer.AddTensor(name, DataType::kF32, {4, 32});
  const TemporaryDirectory directory;
  const fs::path from = directory.path() / "a.gguf", to = directory.path() / "b.gguf";
  const auto zeros = [](size_t, int64_t, int64_t, std::span<std::byte> data) {
    std::ranges::fill(data, std::byte{});
  };
  ASSERT_TRUE(writer.Write(from, zeros));
  const auto done = QuantizeGguf(from, "Q8_0", to, 1);
  ASSERT_TRUE(done) << done.error().message;
  const auto files = Open(to);
  ASSERT_TRUE(files) << files.error().message;
  for (const char* name : kept) EXPECT_EQ((*files)->Find(name)->type, DataType::kF32) << name;
  for (const char* name : quantized) EXPECT_EQ((*files)->Find(name)->type, DataType::kQ8_0) << name;
}

TEST(QuantizeGguf, SaysWhatItCannotDo) {
  const TemporaryDirectory directory;
  const auto refusal = [&](const char* from, const char* preset) {
    const auto done = QuantizeGguf(from, preset, directory.path() / "x.gguf", 1);
    EXPECT_FALSE(fs::exists(directory.path() / "x.gguf"));
    return done ? std::string("done") : done.error().message;
  };
  EXPECT_THAT(refusal("tests/data/gguf/lfm2.f16.gguf", "Q3_X"),
              HasSubstr("supported are: F16, BF16, Q8_0, Q6_K, Q4_K_M"));
  EXPECT_THAT(refusal("tests/data/gguf/lfm2_k256.Q8_0.gguf", "Q4_0"), HasSubstr("is already Q8_0"));
  EXPECT_THAT(refusal("tests/data/README.md", "Q4_0"), HasSubstr("not a GGUF file"));
  // Nothing beyond the file's end is ever read into what is written.
  testing::Image beyond;
  beyond.GgufHeader(1, 1)
      .TextPair("general.architecture", "tiny")
      .TensorInfo("t.weight", {32, 64}, 0, 0)
      .PadTo(32)
      .Raw(std::string(32 * 64 * 4 - 1, 'x'));
  EXPECT_THAT(refusal(directory.Write("beyond.gguf", beyond.bytes()).c_str(), "Q4_0"),
              HasSubstr("tensor \"t.weight\" of 8192 bytes at offset 0 ends beyond"));
}

// The types that llama-quantize chose for the same model.
TEST(QuantizeGgufFixtures, ChoosesTypesAsLlamaQuantizeDoes) {
  QUIRE_FIND_OR_SKIP(quantized, "gguf_quant");
  for (const auto& [family, preset] :
       std::vector<std::pair<std::string, std::string>>{{"lfm2_k256", "Q8_0"},
                                                        {"lfm2_k256", "Q4_0"},
                                                        {"lfm2_k256", "Q4_K_M"},
                                                        {"lfm2_k256", "Q6_K"},
                                                        {"llama_k256", "Q4_K_M"}}) {
    const TemporaryDirectory directory;
    const fs::path path = directory.path() / "x.gguf";
    const auto done = QuantizeGguf(test_data::Find("gguf/" + family + ".f16.gguf"), preset, path, 2);
    ASSERT_TRUE(done) << done.error().message;
    const auto ours = Open(path), theirs = Open(quantized / (family + "." + preset + ".gguf"));
    ASSERT_TRUE(ours && theirs);
    ASSERT_EQ((*ours)->tensors().size(), (*theirs)->tensors().size());
    EXPECT_EQ((*ours)->config().at("general.file_type"), (*theirs)->config().at("general.file_type"));
    for (const Tensor& tensor : (*theirs)->tensors()) {
      const Tensor* mine = (*ours)->Find(tensor.name);
      ASSERT_NE(mine, nullptr) << tensor.name;
      EXPECT_EQ(mine->shape, tensor.shape);
      EXPECT_EQ(mine->type, tensor.type) << family << " " << preset << " " << tensor.name;
    }
  }
}

}  // namespace
}  // namespace quire::runner::weights
