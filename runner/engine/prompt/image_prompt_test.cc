#include "runner/engine/prompt/image_prompt.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace quire::runner::engine {
namespace {

// One pixel.
constexpr std::string_view kPngHex =
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63"
    "6064620600000e0007d76fe4780000000049454e44ae426082";

std::string PngOf(int number) {
  std::string file;
  for (size_t i = 0; i < kPngHex.size(); i += 2)
    file.push_back(static_cast<char>(std::stoi(std::string(kPngHex.substr(i, 2)), nullptr, 16)));
  return file + std::to_string(number);  // behind its end
}

// Makes 4 MB of any image, which cannot be packed.
class LargeImages : public images::ImageProcessor {
 public:
  const std::string& placeholder() const override { return name_; }
  const std::string& image_token() const override { return name_; }
  api::Result<images::PreparedImage> Prepare(const images::Bitmap&) const override {
    images::PreparedImage image;
    image.tiles.push_back({.rows = 1, .columns = 1, .patches = std::vector<float>(1 << 20), .tokens = 2});
    std::iota(image.tiles[0].patches.begin(), image.tiles[0].patches.end(), 0.0F);
    return image;
  }

 private:
  const std::string name_ = "<image>";
};

TEST(PreparedImages, KeepsTheLastOnes) {
  constexpr int kKept = PreparedImages::kBytesMax / (4 << 20);
  const LargeImages processor;
  PreparedImages images;
  const auto get = [&](int number) { return images.Get(processor, api::Client(), PngOf(number)).value(); };
  for (int i = 0; i < 3 * kKept; ++i) get(i);
  const SharedImage last = get(3 * kKept - 1), first = get(2 * kKept);
  EXPECT_GE(last.use_count(), 2);
  EXPECT_EQ(get(3 * kKept - 1), last);
  EXPECT_EQ(get(2 * kKept), first);
}

}  // namespace
}  // namespace quire::runner::engine
