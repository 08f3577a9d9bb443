#include "runner/weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/weights/testing/hostile_files.h"

namespace quire::runner::weights {
namespace {

using testing::AsBytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Image;
using ::testing::IsEmpty;
using testing::Safetensors;
using testing::SmallSafetensors;
using ::testing::StartsWith;

std::string SafetensorsRefusal(const Image& image) {
  const auto entries = ParseSafetensors(AsBytes(image.bytes()), "x.safetensors");
  EXPECT_FALSE(entries) << "accepted";
  if (entries) return {};
  EXPECT_EQ(entries.error().code, api::ErrorCode::kBadModel);
  EXPECT_THAT(entries.error().message, StartsWith("x.safetensors: "));
  return entries.error().message.substr(15);
}

std::string SafetensorsRefusal(const std::string& header, size_t data_bytes = 8) {
  return SafetensorsRefusal(Safetensors(header, data_bytes));
}

TEST(Safetensors, ReadsEntriesOfEveryKind) {
  const Image image = SmallSafetensors();
  const auto entries = ParseSafetensors(AsBytes(image.bytes()), "x.safetensors");
  ASSERT_TRUE(entries) << entries.error().message;
  ASSERT_EQ(entries->size(), 3U);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ((*entries)[0].type, DataType::kF32);
  EXPECT_THAT((*entries)[0].shape, ElementsAre(2, 3));
  EXPECT_EQ((*entries)[0].data.size(), 24U);
  EXPECT_EQ((*entries)[1].type, DataType::kBF16);
  EXPECT_EQ((*entries)[1].data.data(), (*entries)[0].data.data() + 24);
  EXPECT_EQ((*entries)[2].dtype, "I64");
  EXPECT_EQ((*entries)[2].type, std::nullopt);
  EXPECT_THAT((*entries)[2].shape, IsEmpty());
  EXPECT_TRUE(ParseSafetensors(AsBytes(Safetensors("{}", 0).bytes()), "x"));
}

TEST(Safetensors, SurvivesEveryDamage) {
  int accepted = 0;
  int refused = 0;
  ForEachDamage(SmallSafetensors(), [&](std::string_view bytes) {
    const std::vector<char> exact(bytes.begin(), bytes.end());
    const auto entries = ParseSafetensors(AsBytes({exact.data(), exact.size()}), "x.safetensors");
    if (!entries) {
      EXPECT_EQ(entries.error().code, api::ErrorCode::kBadModel);
      ++refused;
      return;
    }
    for (const SafetensorsEntry& entry : *entries) {
      ASSERT_GE(entry.data.data(), reinterpret_cast<const std::byte*>(exact.data()));
      ASSERT_LE(entry.data.data() + entry.data.size(),
                reinterpret_cast<const std::byte*>(exact.data() + exact.size()));
    }
    ++accepted;
  });
  EXPECT_GT(refused, 500);
  EXPECT_GT(accepted, 50);
}

TEST(Safetensors, RefusesHeadersThatDoNotFit) {
  EXPECT_THAT(SafetensorsRefusal(Image()), HasSubstr("empty"));
  EXPECT_THAT(SafetensorsRefusal(Image().Raw("abc")), HasSubstr("too short"));
  EXPECT_THAT(SafetensorsRefusal(Image().Number<uint64_t>(0)), HasSubstr("header is empty"));
  EXPECT_THAT(SafetensorsRefusal(Image().Number<uint64_t>(3).Raw("{}")), HasSubstr("does not fit"));
  EXPECT_THAT(SafetensorsRefusal(Image().Number<uint64_t>(~uint64_t{0}).Raw("{}")),
              HasSubstr("does not fit"));
  EXPECT_THAT(SafetensorsRefusal(Image().Number<uint64_t>(uint64_t{1} << 63).Raw("{}")),
              HasSubstr("does not fit"));
}

TEST(Safetensors, RefusesHeadersOfAnotherShape) {
  for (const char* header :
       {"[]", "1", "null", "\"x\"", "{\"t\":1}", "{\"t\":[]}", "{\"t\":\"F32\"}", "{\"t\":null}",
        "{\"t\":true}", R"({"__metadata__":"x"})", R"({"__metadata__":{"a":1}})",
        R"({"__metadata__":{"a":{}}})", R"({"t":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})",
        R"({"t":{"dtype":"F32","shape":{},"data_offsets":[0,4]}})",
        R"({"t":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})",
        R"({"t":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})",
        R"({"t":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})",
        R"({"t":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})"}) {
    EXPECT_THAT(SafetensorsRefusal(header), HasSubstr("unexpected ")) << header;
  }
  for (const char* header : {"{", "{\"t\":}", "{} {}", "{\"\xff\":{}}", "{\"t\":{\"dtype\":\"F32\",}}"}) {
    EXPECT_THAT(SafetensorsRefusal(header), HasSubstr("not valid JSON")) << header;
  }
  EXPECT_THAT(SafetensorsRefusal(std::string(100'000, '[')), HasSubstr("unexpected "));
  std::string nested;
  for (int i = 0; i < 100'000; ++i) nested += "{\"a\":";
  EXPECT_THAT(SafetensorsRefusal(nested), HasSubstr("has a field"));
  EXPECT_THAT(SafetensorsRefusal("{\"__metadata__\":" + nested), HasSubstr("unexpected "));
}

TEST(Safetensors, RefusesIncompleteOrRepeatedFields) {
  EXPECT_THAT(SafetensorsRefusal(R"({"t":{"shape":[1],"data_offsets":[0,4]}})"), HasSubstr("has no dtype"));
  EXPECT_THAT(SafetensorsRefusal(R"({"t":{"dtype":"F32","data_offsets":[0,4]}})"), HasSubstr("has no shape"));
  EXPECT_THAT(SafetensorsRefusal(R"({"t":{"dtype":"F32","shape":[1]}})"),
              HasSubstr("has no pair of data_offsets"));
  EXPECT_THAT(SafetensorsRefusal(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0]}})"),
              HasSubstr("no pair"));
  EXPECT_THAT(SafetensorsRefusal(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})"),
              HasSubstr("more than two"));
  EXPECT_THAT(SafetensorsRefusal(R"({"t":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})"),
              HasSubstr("duplicate field"));
  EXPECT_THAT(SafetensorsRefusal(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})"),
              HasSubstr("has a field \"more\""));
  EXPECT_THAT(SafetensorsRefusal(R"({"t":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})"),
              HasSubstr("unknown dtype \"F31\""));
  EXPECT_THAT(SafetensorsRefusal(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                 R"("t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"),
              HasSubstr("tensor \"t\" occurs twice"));
}

TEST(Safetensors, RefusesBadShapesAndOffsets) {
  const auto with = [](const std::string& shape, const std::string& offsets) {
    return SafetensorsRefusal(R"({"t":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[)" + offsets +
                              "]}}");
  };
  EXPECT_THAT(with("0", "0,0"), HasSubstr("dimension of 0"));
  EXPECT_THAT(with("-1", "0,4"), HasSubstr("number -1"));
  EXPECT_THAT(with("9223372036854775808", "0,4"), HasSubstr("dimension of 9223372036854775808"));
  EXPECT_THAT(with("4294967296,4294967296", "0,4"), HasSubstr("too many elements"));
  EXPECT_THAT(with("4611686018427387904", "0,4"), HasSubstr("too many elements"));
  EXPECT_THAT(with("1,1,1,1,1,1,1,1,1", "0,4"), HasSubstr("too many dimensions"));
  EXPECT_THAT(with("1", "4,0"), HasSubstr("data_offsets [4, 0]"));
  EXPECT_THAT(with("3", "0,12"), HasSubstr("there are 8 bytes"));
  EXPECT_THAT(with("2", "1,9"), HasSubstr("there are 8 bytes"));
  EXPECT_THAT(with("1", "18446744073709551612,18446744073709551615"), HasSubstr("there are 8 bytes"));
  EXPECT_THAT(with("1", "0,8"), HasSubstr("8 bytes of data, but its shape and dtype F32 need 4"));
  EXPECT_THAT(with("1", "0,3"), HasSubstr("3 bytes of data"));
  EXPECT_THAT(SafetensorsRefusal(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                 R"("u":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}})"),
              HasSubstr("\"t\" and \"u\" overlap"));
}

TEST(Safetensors, StatedSizesCostNothing) {
  const int64_t before = testing::PeakBytes();
  for (const uint64_t count : {uint64_t{1} << 63, ~uint64_t{0}, uint64_t{1} << 62, uint64_t{1} << 40}) {
    EXPECT_THAT(SafetensorsRefusal(Image().Number<uint64_t>(count).Raw(std::string(1000, ' '))),
                HasSubstr("does not fit"));
    const std::string number = std::to_string(count);
    SafetensorsRefusal(R"({"t":{"dtype":"F32","shape":[)" + number + R"(],"data_offsets":[0,4]}})");
    SafetensorsRefusal(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,)" + number + "]}}");
    SafetensorsRefusal(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[)" + number + "," + number + "]}}");
  }
  EXPECT_LT(testing::PeakBytes() - before, testing::kGrowthBytesMax);
}

}  // namespace
}  // namespace quire::runner::weights
