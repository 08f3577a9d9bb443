// Decoded pixels, against Pillow's, and what hostile files do.
#include "runner/images/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/sha256.h"
#include "runner/images/resize.h"
#include "runner/work/work_budget.h"

namespace quire::runner::images {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string FromBase64(std::string_view text) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int filled = 0;
  for (const char c : text.substr(0, text.find('='))) {
    bits = bits << 6 | static_cast<uint32_t>(kAlphabet.find(c));
    filled += 6;
    if (filled < 8) continue;
    filled -= 8;
    bytes += static_cast<char>(bits >> filled);
  }
  return bytes;
}

struct Sample {
  std::string file, sha256;
  int32_t width = 0, height = 0;
};

// tests/golden/make_images.py writes them.
const std::map<std::string, Sample>& Samples() {
  static const auto kSamples = [] {
    std::map<std::string, Sample> samples;
    const auto golden = nlohmann::json::parse(std::ifstream("tests/data/images/decoded.json"));
    for (const auto& [name, sample] : golden.items()) {
      samples[name] = {FromBase64(sample["file"].get<std::string>()), sample["sha256"], sample["width"],
                       sample["height"]};
    }
    return samples;
  }();
  return kSamples;
}

const std::string& FileOf(const std::string& name) { return Samples().at(name).file; }

std::string_view PixelsOf(const Bitmap& bitmap) {
  return {reinterpret_cast<const char*>(bitmap.rgb.data()), bitmap.rgb.size()};
}

std::string ErrorOf(std::string_view file) {
  const auto bitmap = Decode(file);
  if (bitmap) return "decoded";
  EXPECT_EQ(bitmap.error().code, api::ErrorCode::kInvalidArgument) << bitmap.error().message;
  return bitmap.error().message;
}

void SetBigEndian(std::string& file, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) file[at + i] = static_cast<char>(value >> (24 - 8 * i));
}

TEST(Decode, GivesThePixelsOfPillow) {
  EXPECT_GE(Samples().size(), 45U);
  for (const auto& [name, sample] : Samples()) {
    const auto bitmap = Decode(sample.file);
    ASSERT_TRUE(bitmap) << name << ": " << bitmap.error().message;
    EXPECT_EQ(bitmap->width, sample.width) << name;
    EXPECT_EQ(bitmap->height, sample.height) << name;
    EXPECT_EQ(api::Sha256Of(PixelsOf(*bitmap)).substr(0, sample.sha256.size()), sample.sha256) << name;
  }
}

// A file may end behind the pixels of the first frame, and lacks an orientation that stands there.
TEST(Decode, RefusesPixelsThatEndEarly) {
  for (const auto& [name, sample] : Samples()) {
    std::string whole(PixelsOf(*Decode(sample.file)));
    std::ranges::sort(whole);
    for (size_t size = 0; size < sample.file.size(); ++size) {
      // A copy of this size, so that a sanitizer sees what is read behind it.
      const std::string file = sample.file.substr(0, size);
      const auto bitmap = Decode(file);
      if (!bitmap) {
        EXPECT_EQ(bitmap.error().code, api::ErrorCode::kInvalidArgument) << name << ", " << size << " bytes";
        continue;
      }
      std::string pixels(PixelsOf(*bitmap));
      std::ranges::sort(pixels);
      EXPECT_EQ(pixels, whole) << name << ", " << size << " bytes";
    }
  }
}

TEST(Decode, SaysWhatIsWrong) {
  EXPECT_EQ(ErrorOf(""), "the image is not a PNG, JPEG or WebP file");
  EXPECT_EQ(ErrorOf("GIF89a"), "the image is not a PNG, JPEG or WebP file but GIF");
  EXPECT_EQ(ErrorOf(std::string_view("\0\0\0\x1c"
                                     "ftypheic",
                                     12)),
            "the image is not a PNG, JPEG or WebP file but HEIF");
  EXPECT_EQ(ErrorOf("B"), "the image is not a PNG, JPEG or WebP file");
  const std::string& png = FileOf("rgb8.png");
  EXPECT_EQ(ErrorOf(png.substr(0, 60)), "the PNG image is damaged: it ends early");
  const std::string& jpeg = FileOf("q90.jpg");
  EXPECT_EQ(ErrorOf(jpeg.substr(0, jpeg.size() - 40)), "the JPEG image is damaged: it ends early");
  std::string damaged = png;
  damaged[50] ^= 1;
  EXPECT_THAT(ErrorOf(damaged), StartsWith("the PNG image is damaged: "));
}

TEST(Decode, ChecksSidesBeforePixels) {
  constexpr size_t kWidth = 16, kHeight = 20, kHeaderEnd = 29;
  const auto png = [](uint32_t width, uint32_t height) {
    std::string file = FileOf("rgb8.png");
    SetBigEndian(file, kWidth, width);
    SetBigEndian(file, kHeight, height);
    uint32_t crc = 0xffffffff;
    for (size_t i = 12; i < kHeaderEnd; ++i) {
      crc ^= static_cast<uint8_t>(file[i]);
      for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
    }
    SetBigEndian(file, kHeaderEnd, ~crc);
    return file;
  };
  EXPECT_THAT(ErrorOf(png(1, 100'000)), StartsWith("the image has 1 x 100000 pixels"));
  EXPECT_THAT(ErrorOf(png(0x7fffffff, 0x7fffffff)),
              StartsWith("the image has 2147483647 x 2147483647 pixels"));
  EXPECT_THAT(ErrorOf(png(60'000, 60'000)), StartsWith("the image has 60000 x 60000 pixels"));
  EXPECT_EQ(ErrorOf(png(8'192, 8'192)), "the PNG image is damaged: Not enough image data");

  std::string jpeg = FileOf("progressive.jpg");
  const size_t frame = jpeg.find("\xff\xc2");
  ASSERT_NE(frame, jpeg.npos);
  jpeg.replace(frame + 5, 4, "\xff\xdc\xff\xdc");
  EXPECT_THAT(ErrorOf(jpeg), StartsWith("the image has 65500 x 65500 pixels"));
  std::string webp = FileOf("rgb_lossless.webp");
  webp.replace(21, 4, std::string("\xff\xff\xff\x0f", 4));
  EXPECT_THAT(ErrorOf(webp), StartsWith("the image has 16384 x 16384 pixels"));
}

// With its first scan so often.
std::string JpegOfScans(int scans) {
  const std::string& jpeg = FileOf("progressive.jpg");
  const size_t first = jpeg.find("\xff\xda"), next = jpeg.find("\xff\xc4", first);
  EXPECT_NE(next, jpeg.npos);
  std::string many = jpeg.substr(0, next);
  for (int i = 1; i < scans; ++i) many += jpeg.substr(first, next - first);
  return many + jpeg.substr(next);
}

TEST(Decode, LimitsTheScansOfAJpeg) { EXPECT_THAT(ErrorOf(JpegOfScans(200)), HasSubstr("too many scans")); }

TEST(Decode, EndsWhenItsRequestIsCanceled) {
  const std::atomic<bool> canceled = true;
  const WorkBudget budget(std::chrono::hours(1), canceled);
  EXPECT_THROW(static_cast<void>(Decode(JpegOfScans(50))), WorkStopped);
  const Bitmap bitmap{300, 300, std::vector<uint8_t>(270'000)};
  EXPECT_THROW(static_cast<void>(Resize(bitmap, 20, 300, Filter::kBicubic)), WorkStopped);
  EXPECT_THROW(static_cast<void>(Resize(bitmap, 300, 20, Filter::kBicubic)), WorkStopped);
}

TEST(Decode, SurvivesFlippedBits) {
  std::mt19937 random(7);
  for (const auto& [name, sample] : Samples()) {
    for (int i = 0; i < 200; ++i) {
      std::string file = sample.file;
      for (int flips = 0; flips <= i % 3; ++flips) {
        file[random() % file.size()] ^= static_cast<char>(1 << random() % 8);
      }
      const auto bitmap = Decode(file);
      if (bitmap) continue;
      EXPECT_EQ(bitmap.error().code, api::ErrorCode::kInvalidArgument) << name;
    }
  }
}

}  // namespace
}  // namespace quire::runner::images
