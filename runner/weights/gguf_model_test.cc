// Models in several GGUF files, and what opening one costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runner/weights/model_formats.h"
#include "runner/weights/quantize_model.h"
#include "runner/weights/testing/hostile_files.h"

namespace quire::runner::weights {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::Image;

struct SplitFile {
  std::string tensor;
  uint16_t number = 0;
  uint16_t count = 2;
  int32_t tensors = 2;
};

std::string Bytes(const SplitFile& split) {
  Image image;
  image.GgufHeader(1, split.number == 0 ? 4 : 3);
  if (split.number == 0) image.TextPair("general.architecture", "tiny");
  image.Pair<uint16_t>("split.no", 2, split.number)
      .Pair<uint16_t>("split.count", 2, split.count)
      .Pair<int32_t>("split.tensors.count", 5, split.tensors)
      .TensorInfo(split.tensor, {8}, 0, 0)
      .PadTo(32)
      .Raw(std::string(32, static_cast<char>('a' + split.number)));
  return image.bytes();
}

class GgufSplits : public ::testing::Test {
 protected:
  void Write(int number, const SplitFile& split) {
    directory_.Write("m-0000" + std::to_string(number) + "-of-00002.gguf", Bytes(split));
  }
  api::Result<std::shared_ptr<const ModelFiles>> OpenNumber(int number) const {
    return Open(directory_.path() / ("m-0000" + std::to_string(number) + "-of-00002.gguf"));
  }
  std::string Refusal(int number = 1) const {
    const auto files = OpenNumber(number);
    if (files) return "accepted";
    EXPECT_EQ(files.error().code, api::ErrorCode::kBadModel);
    return files.error().message;
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(GgufSplits, AreOneModel) {
  Write(1, {.tensor = "a"});
  Write(2, {.tensor = "b", .number = 1});
  const auto files = OpenNumber(1);
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ((*files)->architecture(), "tiny");
  EXPECT_THAT((*files)->path(), EndsWith("m-00001-of-00002.gguf"));
  ASSERT_EQ((*files)->tensors().size(), 2U);
  EXPECT_EQ((*files)->Find("a")->data[0], std::byte{'a'});
  EXPECT_EQ((*files)->Find("b")->data[0], std::byte{'b'});
}

TEST_F(GgufSplits, BecomeOneFile) {
  Write(1, {.tensor = "a"});
  Write(2, {.tensor = "b", .number = 1});
  const auto whole = directory_.path() / "whole.gguf";
  const auto done = QuantizeGguf(directory_.path() / "m-00001-of-00002.gguf", "", whole, 1);
  ASSERT_TRUE(done) << done.error().message;
  const auto files = Open(whole);
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ((*files)->architecture(), "tiny");
  EXPECT_FALSE((*files)->config().contains("split.count"));
  ASSERT_EQ((*files)->tensors().size(), 2U);
  EXPECT_EQ((*files)->Find("a")->data[0], std::byte{'a'});
  EXPECT_EQ((*files)->Find("b")->data[31], std::byte{'b'});
}

TEST_F(GgufSplits, OneThatIsMissingOrStrangeIsNamed) {
  Write(1, {.tensor = "a"});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("m-00002-of-00002.gguf: missing"), HasSubstr("number 2")));
  Write(2, {.tensor = "a", .number = 1});
  EXPECT_THAT(Refusal(), HasSubstr("m-00002-of-00002.gguf: tensor \"a\" is also in an earlier file"));
  Write(2, {.tensor = "b", .number = 1, .count = 3});
  EXPECT_THAT(Refusal(), HasSubstr("m-00002-of-00002.gguf: split.no is 1 of 3, not 1 of 2"));
  Write(2, {.tensor = "b", .number = 1});
  EXPECT_THAT(Refusal(2),
              HasSubstr("number 2 of 2 files; open the first, whose name ends in -00001-of-00002.gguf"));
  directory_.Write("m-00002-of-00002.gguf", Bytes({.tensor = "b", .number = 1}).substr(0, 150));
  EXPECT_THAT(Refusal(), HasSubstr("m-00002-of-00002.gguf: "));
  Write(2, {.tensor = "b", .number = 1});
  Write(1, {.tensor = "a", .tensors = 3});
  EXPECT_THAT(Refusal(), HasSubstr("split.tensors.count is 3, but the 2 files hold 2 tensors"));
}

TEST_F(GgufSplits, NumbersThatCannotBeAreRefused) {
  for (const auto& [number, count] : {std::pair<uint16_t, uint16_t>{5, 2}, {2, 2}, {1, 0}, {0, 65535}}) {
    Write(1, {.tensor = "a", .number = number, .count = count});
    EXPECT_THAT(Refusal(), HasSubstr("split.")) << number << " of " << count;
  }
  const auto path = directory_.Write("renamed.gguf", Bytes({.tensor = "a"}));
  EXPECT_THAT(Open(path).error().message, HasSubstr("does not end in -00001-of-00002.gguf"));
}

// A file of 8 GB, almost all of it tensor data: opening reads the header and maps the rest.
// Converters name RWKV's template and leave its text to who runs it.
TEST(GgufModel, HasTheTemplateThatAFileNames) {
  const auto text_of = [](const char* named) {
    testing::TemporaryDirectory directory;
    Image image;
    image.GgufHeader(1, 2)
        .TextPair("general.architecture", "rwkv7")
        .TextPair("tokenizer.chat_template", named)
        .TensorInfo("a", {8}, 0, 0)
        .PadTo(32)
        .Raw(std::string(32, 'a'));
    directory.Write("m.gguf", image.bytes());
    return Open(directory.path() / "m.gguf").value()->chat_template();
  };
  EXPECT_THAT(text_of("rwkv-world"), HasSubstr("{{ 'User: ' + message.content | trim"));
  EXPECT_EQ(text_of("rwkv-worlds"), "rwkv-worlds");
}

TEST(GgufModel, HasTheTemplatesThatAFileNames) {
  testing::TemporaryDirectory directory;
  Image image;
  image.GgufHeader(1, 3)
      .TextPair("general.architecture", "llama")
      .TextPair("tokenizer.chat_template.default", "d")
      .TextPair("tokenizer.chat_template.tool_use", "t")
      .TensorInfo("a", {8}, 0, 0)
      .PadTo(32)
      .Raw(std::string(32, 'a'));
  directory.Write("m.gguf", image.bytes());
  const auto files = Open(directory.path() / "m.gguf").value();
  EXPECT_EQ(files->chat_template(), "d");
  EXPECT_EQ(files->named_chat_template("tool_use"), "t");
  EXPECT_EQ(files->named_chat_template("rag"), "");
}

TEST(GgufModel, LeavesTensorsOnDiskUntilTheyAreUsed) {
  constexpr uint64_t kElements = uint64_t{1} << 31;
  Image image;
  image.GgufHeader(1, 1)
      .TextPair("general.architecture", "tiny")
      .TensorInfo("t", {kElements}, 0, 0)
      .PadTo(32);
  const testing::TemporaryDirectory directory;
  const auto path = directory.Write("large.gguf", image.bytes());
  std::error_code error;
  std::filesystem::resize_file(path, image.bytes().size() + kElements * 4, error);
  if (error) GTEST_SKIP() << "no sparse files here: " << error.message();
  const int64_t before = testing::PeakBytes();
  const auto files = Open(path);
  ASSERT_TRUE(files) << files.error().message;
  const Tensor* tensor = (*files)->Find("t");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->data.size(), kElements * 4);
  EXPECT_EQ(tensor->data.back(), std::byte{0});
  EXPECT_LT(testing::PeakBytes() - before, testing::kGrowthBytesMax);
}

}  // namespace
}  // namespace quire::runner::weights
