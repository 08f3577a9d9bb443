#include "runner/weights/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "runner/weights/block_formats.h"
#include "runner/weights/ggml_types.h"
#include "runner/weights/testing/hostile_files.h"

namespace quire::runner::weights {
namespace {

using nlohmann::ordered_json;
using testing::AsBytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Image;
using testing::SmallGguf;
using ::testing::StartsWith;

// The reason why the image is refused, without the file name; fails the test when it is not.
std::string Refusal(const Image& image) {
  const auto contents = ParseGguf(AsBytes(image.bytes()), "x.gguf");
  EXPECT_FALSE(contents) << "accepted";
  if (contents) return {};
  EXPECT_EQ(contents.error().code, api::ErrorCode::kBadModel);
  EXPECT_THAT(contents.error().message, StartsWith("x.gguf: "));
  return contents.error().message.substr(8);
}

Image WithTensor(const std::vector<uint64_t>& dimensions, uint32_t type, uint64_t offset, size_t data_bytes) {
  Image image;
  image.GgufHeader(1, 0)
      .TensorInfo("t", dimensions, type, offset)
      .PadTo(32)
      .Raw(std::string(data_bytes, 'x'));
  return image;
}

TEST(Gguf, ReadsEveryValueType) {
  const Image image = SmallGguf();
  const auto contents = ParseGguf(AsBytes(image.bytes()), "x.gguf");
  ASSERT_TRUE(contents) << contents.error().message;
  EXPECT_EQ(contents->version, 3U);
  const ordered_json& metadata = *contents->metadata;
  EXPECT_EQ(metadata.at("u8"), 200);
  EXPECT_EQ(metadata.at("i8"), -3);
  EXPECT_EQ(metadata.at("u16"), 60000);
  EXPECT_EQ(metadata.at("i16"), -30000);
  EXPECT_EQ(metadata.at("u32"), 4000000000);
  EXPECT_EQ(metadata.at("i32"), -2000000000);
  EXPECT_EQ(metadata.at("f32").dump(), "1e-05");
  EXPECT_EQ(metadata.at("f32").get<float>(), 1e-5F);
  EXPECT_EQ(metadata.at("bool"), true);
  EXPECT_EQ(metadata.at("u64"), uint64_t{1} << 63);
  EXPECT_EQ(metadata.at("i64"), -(int64_t{1} << 62));
  EXPECT_EQ(metadata.at("f64"), 0.1);
  EXPECT_EQ(metadata.at("numbers"), ordered_json::array({1, -1, 7}));
  EXPECT_EQ(metadata.at("texts")[1].get<std::string>(), "\xff\xfe");
  EXPECT_EQ(metadata.at("nothing"), ordered_json::array());
  EXPECT_EQ(metadata.begin().key(), "general.architecture");

  ASSERT_EQ(contents->tensors.size(), 2U);
  EXPECT_EQ(contents->tensors[0].name, "a.weight");
  EXPECT_THAT(contents->tensors[0].shape, ElementsAre(3, 4));
  EXPECT_EQ(contents->tensors[0].data.size(), 48U);
  EXPECT_EQ(contents->tensors[1].type, DataType::kQ8_0);
  EXPECT_EQ(contents->tensors[1].data.data(), contents->tensors[0].data.data() + 64);
  EXPECT_EQ(contents->tensors[1].data.size(), 68U);
}

TEST(Gguf, KeepsEveryFloat32) {
  for (const float value : {0.0F, -0.0F, 1.0F, 0.1F, 16777217.0F, 3.4028235e38F, 1.4e-45F, 1e6F, -2.5e-7F}) {
    Image image;
    image.GgufHeader(0, 1).Pair<float>("f", 6, value);
    const auto contents = ParseGguf(AsBytes(image.bytes()), "x.gguf");
    ASSERT_TRUE(contents);
    EXPECT_EQ(contents->metadata->at("f").get<float>(), value);
  }
  Image image;
  image.GgufHeader(0, 1).Pair<float>("f", 6, NAN);
  EXPECT_TRUE(std::isnan(ParseGguf(AsBytes(image.bytes()), "x.gguf")->metadata->at("f").get<double>()));
}

TEST(Gguf, ReadsVersion2AndNoOther) {
  Image image;
  image.GgufHeader(0, 0, 2);
  EXPECT_TRUE(ParseGguf(AsBytes(image.bytes()), "x.gguf"));
  for (const uint32_t version : {0U, 1U, 4U, ~0U}) {
    EXPECT_THAT(Refusal(Image().GgufHeader(0, 0, version)), HasSubstr("GGUF version"));
  }
  EXPECT_THAT(Refusal(Image().GgufHeader(0, 0, 0x03000000)), HasSubstr("big-endian"));
  EXPECT_THAT(Refusal(Image().Raw("ggml then more bytes")), HasSubstr("not a GGUF file"));
  EXPECT_THAT(Refusal(Image()), HasSubstr("empty"));
  EXPECT_THAT(Refusal(Image().Raw("GGU")), HasSubstr("the file ends inside the header"));
}

TEST(Gguf, SurvivesEveryDamage) {
  int accepted = 0;
  int refused = 0;
  ForEachDamage(SmallGguf(), [&](std::string_view bytes) {
    // A copy of exact size, so that a read past the end is seen.
    const std::vector<char> exact(bytes.begin(), bytes.end());
    const auto contents = ParseGguf(AsBytes({exact.data(), exact.size()}), "x.gguf");
    if (!contents) {
      EXPECT_EQ(contents.error().code, api::ErrorCode::kBadModel);
      ++refused;
      return;
    }
    for (const Tensor& tensor : contents->tensors) {
      ASSERT_GE(tensor.data.data(), reinterpret_cast<const std::byte*>(exact.data()));
      ASSERT_LE(tensor.data.data() + tensor.data.size(),
                reinterpret_cast<const std::byte*>(exact.data() + exact.size()));
      ASSERT_EQ(tensor.data.size(),
                static_cast<size_t>(tensor.rows()) * RowBytes(tensor.type, tensor.columns()));
    }
    ++accepted;
  });
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 100);
}

TEST(Gguf, StatedCountsCostNothing) {
  const int64_t before = testing::PeakBytes();
  const std::string filler(1000, '\0');
  for (const uint64_t count : {uint64_t{1} << 63, ~uint64_t{0}, uint64_t{1} << 32, uint64_t{60000}}) {
    EXPECT_THAT(Refusal(Image().GgufHeader(0, count).Raw(filler)), HasSubstr("key/values"));
    EXPECT_THAT(Refusal(Image().GgufHeader(count, 0).Raw(filler)), HasSubstr("tensors"));
    EXPECT_THAT(Refusal(Image().GgufHeader(0, 1).ArrayPair("k", 8, count).Raw(filler)),
                HasSubstr("items of key"));
    EXPECT_THAT(Refusal(Image().GgufHeader(0, 1).ArrayPair("k", 0, count).Raw(filler)),
                HasSubstr("items of key"));
    EXPECT_THAT(Refusal(Image().GgufHeader(0, 1).Number<uint64_t>(count).Raw(filler)), HasSubstr("bytes"));
    Image text;
    text.GgufHeader(0, 1).Text("k").Number<uint32_t>(8).Number<uint64_t>(count).Raw(filler);
    EXPECT_THAT(Refusal(text), HasSubstr("bytes"));
  }
  EXPECT_LT(testing::PeakBytes() - before, testing::kGrowthBytesMax);
}

TEST(Gguf, RefusesBadKeys) {
  EXPECT_THAT(Refusal(Image().GgufHeader(0, 1).TextPair("", "long enough to fit")), HasSubstr("empty"));
  EXPECT_THAT(Refusal(Image().GgufHeader(0, 1).TextPair("\xc3(", "v")), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(Refusal(Image().GgufHeader(0, 2).TextPair("k", "v").TextPair("k", "w")),
              HasSubstr("key \"k\" occurs twice"));
  EXPECT_THAT(Refusal(Image().GgufHeader(0, 1).TextPair("k", "\xed\xa0\x80")), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(Refusal(Image().GgufHeader(0, 1).Pair<uint64_t>("k", 13, 0)),
              HasSubstr("unknown value type 13"));
  EXPECT_THAT(Refusal(Image().GgufHeader(0, 1).Pair<uint8_t>("k", 7, 2)), HasSubstr("a bool of value 2"));
  EXPECT_THAT(Refusal(Image().GgufHeader(0, 1).ArrayPair("k", 9, 1).ArrayPair("", 9, 1)),
              HasSubstr("array of arrays"));
  EXPECT_THAT(Refusal(Image().GgufHeader(0, 1).ArrayPair("k", 99, 1)), HasSubstr("unknown type 99"));
}

TEST(Gguf, RefusesBadAlignments) {
  for (const uint32_t alignment : {0U, 1U, 4U, 24U, 33U, ~0U}) {
    EXPECT_THAT(Refusal(Image().GgufHeader(0, 1).Pair<uint32_t>("general.alignment", 4, alignment)),
                HasSubstr("general.alignment"));
  }
  EXPECT_THAT(Refusal(Image().GgufHeader(0, 1).TextPair("general.alignment", "32")),
              HasSubstr("general.alignment"));
  // Larger than the file: the data would begin beyond its end.
  Image image;
  image.GgufHeader(1, 1)
      .Pair<uint32_t>("general.alignment", 4, 1U << 31)
      .TensorInfo("t", {1}, 0, 0)
      .Raw(std::string(64, 'x'));
  EXPECT_THAT(Refusal(image), HasSubstr("ends before the tensor data"));
}

// Ollama's converter writes such tensors. Whoever needs one does not find it.
TEST(Gguf, LeavesTensorsWithoutElementsOut) {
  for (const std::vector<uint64_t>& dimensions : {std::vector<uint64_t>{0}, {4, 0}, {0, 4}}) {
    const Image image = WithTensor(dimensions, 0, 0, 64);
    const auto parsed = ParseGguf(AsBytes(image.bytes()), "file");
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_TRUE(parsed->tensors.empty());
    EXPECT_EQ(parsed->empty, std::vector<std::string>{"t"});
  }
}

TEST(Gguf, RefusesBadDimensions) {
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  for (const auto& dimensions : std::vector<std::vector<uint64_t>>{
           {~uint64_t{0}}, {uint64_t{1} << 63}, {kHuge, 4}, {1U << 31, 1U << 31, 4}}) {
    EXPECT_THAT(Refusal(WithTensor(dimensions, 0, 0, 64)), HasSubstr("dimension"));
  }
  EXPECT_THAT(Refusal(WithTensor({kHuge}, 0, 0, 64)), HasSubstr("too large"));
  EXPECT_THAT(Refusal(WithTensor({1, 1, 1, 1, 1}, 0, 0, 64)), HasSubstr("5 dimensions"));
  EXPECT_THAT(Refusal(WithTensor({33}, 8, 0, 64)), HasSubstr("not a multiple of the Q8_0 block size 32"));
  EXPECT_THAT(Refusal(WithTensor({kHuge}, 8, 0, 64)), HasSubstr("ends beyond"));
}

TEST(Gguf, RefusesDataBeyondTheFile) {
  EXPECT_TRUE(ParseGguf(AsBytes(WithTensor({16}, 0, 0, 64).bytes()), "x.gguf"));
  EXPECT_THAT(Refusal(WithTensor({16}, 0, 0, 63)), HasSubstr("ends beyond"));
  EXPECT_THAT(Refusal(WithTensor({17}, 0, 0, 64)), HasSubstr("ends beyond"));
  EXPECT_THAT(Refusal(WithTensor({16}, 0, 32, 64)), HasSubstr("ends beyond"));
  EXPECT_THAT(Refusal(WithTensor({16}, 0, uint64_t{0} - 32, 64)), HasSubstr("ends beyond"));
  EXPECT_THAT(Refusal(WithTensor({16}, 0, uint64_t{1} << 63, 64)), HasSubstr("ends beyond"));
  EXPECT_THAT(Refusal(WithTensor({1}, 0, 4, 64)), HasSubstr("not a multiple of 32"));
  EXPECT_THAT(Refusal(WithTensor({1}, 0, 0, 0)), HasSubstr("ends beyond"));
}

TEST(Gguf, RefusesTwoTensorsInOnePlaceOrOfOneName) {
  Image twice;
  twice.GgufHeader(2, 0)
      .TensorInfo("t", {1}, 0, 0)
      .TensorInfo("t", {1}, 0, 32)
      .PadTo(32)
      .Raw(std::string(64, 'x'));
  EXPECT_THAT(Refusal(twice), HasSubstr("tensor \"t\" occurs twice"));
  Image overlap;
  overlap.GgufHeader(2, 0)
      .TensorInfo("t", {16}, 0, 0)
      .TensorInfo("u", {1}, 0, 32)
      .PadTo(32)
      .Raw(std::string(64, 'x'));
  EXPECT_THAT(Refusal(overlap), HasSubstr("tensors \"t\" and \"u\" overlap"));
  Image name;
  name.GgufHeader(1, 0).TensorInfo("t\xff", {1}, 0, 0).PadTo(32).Raw(std::string(64, 'x'));
  EXPECT_THAT(Refusal(name), HasSubstr("not valid UTF-8"));
}

TEST(Gguf, NamesTheTypesItDoesNotRead) {
  EXPECT_EQ(Refusal(WithTensor({256}, 15, 0, 512)),
            "tensor \"t\" has type Q8_K, which this build does not support");
  EXPECT_EQ(Refusal(WithTensor({256}, 4, 0, 256)), "tensor \"t\" has unknown type 4");
  EXPECT_EQ(Refusal(WithTensor({256}, ~0U, 0, 256)), "tensor \"t\" has unknown type 4294967295");
}

TEST(GgmlTypes, EveryDataTypeHasANumberAndAFileType) {
  std::set<DataType> read;
  for (uint32_t id = 0; id < 64; ++id) {
    const GgmlType* type = FindGgmlType(id);
    if (type == nullptr || !type->type) continue;
    read.insert(*type->type);
    EXPECT_EQ(type->name, Name(*type->type));
    EXPECT_EQ(RowBytes(*type->type, type->block_elements), static_cast<size_t>(type->block_bytes));
    EXPECT_THAT(GgufFileTypeName(GgufFileTypeOf(*type->type)), StartsWith(std::string(type->name)));
  }
  EXPECT_EQ(read.size(), kBlockFormats.size());
  EXPECT_EQ(GgufFileTypeName(15), "Q4_K_M");
  EXPECT_EQ(GgufFileTypeName(-1), "");
}

TEST(GgmlTypes, AgreeWithTheReferenceBlocks) {
  std::ifstream stream("tests/data/quants/quant_blocks.json");
  ASSERT_TRUE(stream);
  const auto reference = ordered_json::parse(stream);
  for (const auto& [name, block] : reference.at("types").items()) {
    const GgmlType* type = FindGgmlType(block.at("ggml_type").get<uint32_t>());
    ASSERT_NE(type, nullptr) << name;
    EXPECT_EQ(type->name, name);
    EXPECT_EQ(type->block_elements, block.at("block_elems")) << name;
    EXPECT_EQ(type->block_bytes, block.at("block_bytes")) << name;
  }
}

}  // namespace
}  // namespace quire::runner::weights
