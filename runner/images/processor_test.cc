// What processors make of images, against recorded results of transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/sha256.h"
#include "runner/images/decode.h"
#include "runner/images/image_processor.h"
#include "runner/weights/model_files.h"
#include "runner/weights/safetensors.h"
#include "runner/weights/testing/hostile_files.h"
#include "tests/data/test_data.h"

namespace quire::runner::images {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::unique_ptr<const ImageProcessor> ProcessorOf(const fs::path& model, const fs::path& projector = {}) {
  const auto files = weights::Open(model);
  EXPECT_TRUE(files) << files.error().message;
  if (!files) return nullptr;
  std::shared_ptr<const weights::ModelFiles> tower;
  if (!projector.empty()) tower = weights::Open(projector).value();
  auto processor = ReadProcessor(**files, tower.get());
  EXPECT_TRUE(processor) << processor.error().message;
  return processor ? *std::move(processor) : nullptr;
}

// The values of pixel_values as tiles have them: without padding and the second frame of Qwen's pairs.
std::vector<float> Rearranged(const std::string& family, const std::vector<float>& values, const Tile& tile,
                              size_t index, size_t padded_tile) {
  std::vector<float> patches(tile.patches.size());
  const size_t patch = patches.size() / static_cast<size_t>(tile.rows * tile.columns);
  const auto columns = static_cast<size_t>(tile.columns);
  for (size_t i = 0; i < patches.size(); ++i) {
    const size_t number = i / patch, in_patch = i % patch;
    size_t from = index * padded_tile + i;
    if (family == "qwen3_vl") {
      const size_t plane = patch / 3;
      from = number * 2 * patch + in_patch / plane * 2 * plane + in_patch % plane;
    } else if (family == "gemma3_vl") {
      constexpr size_t kPatch = 7;
      const size_t side = columns * kPatch, channel = in_patch / (kPatch * kPatch);
      const size_t row = number / columns * kPatch + in_patch / kPatch % kPatch;
      from = (channel * side + row) * side + number % columns * kPatch + in_patch % kPatch;
    }
    patches[i] = from < values.size() ? values[from] : -1000;
  }
  return patches;
}

class PublishedProcessor : public ::testing::TestWithParam<std::string> {};

TEST_P(PublishedProcessor, GivesThePixelsTokensAndTextOfTheReference) {
  QUIRE_FIND_OR_SKIP(folder, "vision/" + GetParam());
  const auto golden = ordered_json::parse(ReadFile(folder / "golden.json"));
  const std::string arrays = ReadFile(folder / "golden.safetensors");
  const auto entries = weights::ParseSafetensors(std::as_bytes(std::span(arrays)), "golden").value();
  const auto processor = ProcessorOf(folder);
  ASSERT_NE(processor, nullptr);
  size_t compared = 0;
  for (size_t c = 0; c < golden["cases"].size(); ++c) {
    const auto& test = golden["cases"][c];
    int32_t tokens = 0;
    for (const size_t number : test["images"]) {
      const std::string name = golden["images"][number];
      const auto bitmap = Decode(ReadFile(folder.parent_path() / "images" / name));
      ASSERT_TRUE(bitmap) << bitmap.error().message;
      const auto image = processor->Prepare(*bitmap);
      ASSERT_TRUE(image) << image.error().message;
      tokens += image->tokens();
      const auto pixels = std::ranges::find(entries, "c" + std::to_string(c) + ".pixel_values",
                                            &weights::SafetensorsEntry::name);
      if (pixels == entries.end()) continue;
      std::vector<float> values(pixels->data.size() / sizeof(float));
      std::memcpy(values.data(), pixels->data.data(), pixels->data.size());
      for (size_t i = 0; i < image->tiles.size(); ++i) {
        EXPECT_EQ(image->tiles[i].patches,
                  Rearranged(GetParam(), values, image->tiles[i], i, values.size() / image->tiles.size()))
            << name << ", tile " << i;
        ++compared;
      }
    }
    EXPECT_EQ(tokens, test["n_image_tokens"]);
  }
  EXPECT_GE(compared, 4U);
}

// As recorded: the first half.
std::string DigestOf(std::string_view bytes) { return api::Sha256Of(bytes).substr(0, 32); }

// As pattern() of tests/golden/make_images.py, which wrote the results.
Bitmap Pattern(int32_t width, int32_t height) {
  Bitmap bitmap{width, height, {}};
  for (int32_t y = 0; y < height; ++y) {
    for (int32_t x = 0; x < width; ++x) {
      for (int32_t c = 0; c < 3; ++c) {
        bitmap.rgb.push_back(
            static_cast<uint8_t>((x * 7 + y * 3 * (c + 1) + (x / 5 + y / 4) % 3 * 40 * (c + 1)) % 256));
      }
    }
  }
  return bitmap;
}

// A directory with the members of this object as files, and a tensor of a tower.
class ModelDirectory {
 public:
  explicit ModelDirectory(std::string_view files) {
    const auto object = ordered_json::parse(files);
    for (const auto& [name, content] : object.items()) {
      if (name.ends_with(".json") && !content.is_null()) directory_.Write(name, content.dump());
    }
    directory_.Write(
        "model.safetensors",
        weights::testing::Safetensors(R"({"visual.x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8)
            .bytes());
  }
  const fs::path& path() const { return directory_.path(); }

 private:
  weights::testing::TemporaryDirectory directory_;
};

// What there is for a family when its files say nothing else.
std::string OnlyFamily(const std::string& name, const std::string& preprocessor = "null") {
  return R"({"config.json":{"model_type":")" + name + R"(","vision_config":{}},"preprocessor_config.json":)" +
         preprocessor + "}";
}

TEST(Processor, GivesTheTilesAndTextsOfTransformers) {
  const auto golden = ordered_json::parse(ReadFile("tests/data/images/prepared.json"));
  EXPECT_GE(golden.size(), 13U);
  for (const auto& [name, model] : golden.items()) {
    const ModelDirectory directory(model.dump());
    const auto processor = ProcessorOf(directory.path());
    ASSERT_NE(processor, nullptr) << name;
    for (const auto& expected : model["images"]) {
      const int32_t width = expected["width"], height = expected["height"];
      const auto image = processor->Prepare(Pattern(width, height));
      ASSERT_TRUE(image) << image.error().message;
      ordered_json tiles = ordered_json::array();
      for (const Tile& tile : image->tiles) {
        const std::string_view bytes(reinterpret_cast<const char*>(tile.patches.data()),
                                     tile.patches.size() * sizeof(float));
        tiles.push_back({tile.rows, tile.columns, tile.tokens, DigestOf(bytes)});
      }
      EXPECT_EQ(tiles, expected["tiles"]) << name << ", " << width << " x " << height;
      EXPECT_EQ(DigestOf(image->prompt_text), expected["text"].get<std::string>())
          << name << ", " << width << " x " << height;
    }
  }
}

TEST(Processor, TellsImagesApart) {
  const ModelDirectory directory(OnlyFamily("qwen3_vl"));
  const auto processor = ProcessorOf(directory.path());
  ASSERT_NE(processor, nullptr);
  std::set<std::array<uint8_t, 32>> digests;
  Bitmap image = Pattern(320, 256);
  digests.insert(processor->Prepare(image)->digest);
  EXPECT_EQ(processor->Prepare(image)->digest, *digests.begin());
  ++image.rgb[3 * 320 * 200 + 17];
  digests.insert(processor->Prepare(image)->digest);
  // The same pixels in other rows.
  digests.insert(processor->Prepare({640, 128, std::vector<uint8_t>(size_t{3} * 640 * 128)})->digest);
  digests.insert(processor->Prepare({128, 640, std::vector<uint8_t>(size_t{3} * 640 * 128)})->digest);
  EXPECT_EQ(digests.size(), 4U);
}

// A GGUF file with these texts and numbers, and no tensors.
fs::path WriteKeys(const weights::testing::TemporaryDirectory& directory,
                   const std::vector<std::pair<std::string, std::string>>& texts,
                   const std::vector<std::pair<std::string, uint32_t>>& numbers) {
  constexpr uint32_t kUint32 = 4;
  weights::testing::Image file;
  file.GgufHeader(0, texts.size() + numbers.size());
  for (const auto& [key, value] : texts) file.TextPair(key, value);
  for (const auto& [key, value] : numbers) file.Pair<uint32_t>(key, kUint32, value);
  return directory.Write("keys.gguf", file.PadTo(32).bytes());
}

TEST(Processor, ReadsTheKeysOfGgufFiles) {
  const weights::testing::TemporaryDirectory directory;
  const Bitmap picture = Pattern(300, 170);
  struct Case {
    std::string family;
    std::vector<std::pair<std::string, std::string>> texts;
    std::vector<std::pair<std::string, uint32_t>> numbers;
  };
  for (const Case& test : std::vector<Case>{
           {"gemma3",
            {{"general.architecture", "clip"}, {"clip.projector_type", "gemma3"}},
            {{"clip.vision.block_count", 27},
             {"clip.vision.image_size", 896},
             {"clip.vision.patch_size", 14}}},
           {"lfm2_vl",
            {{"general.architecture", "clip"}, {"clip.projector_type", "lfm2"}},
            {{"clip.vision.block_count", 12}, {"clip.vision.projector.scale_factor", 2}}},
           {"gemma4",
            {{"general.architecture", "clip"}, {"clip.vision.projector_type", "gemma4v"}},
            {{"clip.vision.block_count", 16}, {"clip.vision.patch_size", 16}}},
           {"qwen3_5", {{"general.architecture", "qwen35"}}, {{"qwen35.vision.block_count", 12}}},
           {"qwen2_5_vl",
            {{"general.architecture", "qwen25vl"}},
            {{"qwen25vl.vision.block_count", 32}, {"qwen25vl.vision.patch_size", 14}}},
           {"gemma3",
            {{"general.architecture", "gemma3"}},
            {{"gemma3.vision.block_count", 27}, {"gemma3.mm.tokens_per_image", 256}}}}) {
    const auto from_keys = ProcessorOf(WriteKeys(directory, test.texts, test.numbers));
    const ModelDirectory published(OnlyFamily(test.family));
    const auto expected = ProcessorOf(published.path());
    ASSERT_TRUE(from_keys != nullptr && expected != nullptr) << test.family;
    const auto image = from_keys->Prepare(picture), other = expected->Prepare(picture);
    EXPECT_EQ(image->digest, other->digest) << test.family;
    EXPECT_EQ(image->prompt_text, other->prompt_text) << test.family;
    EXPECT_EQ(image->tiles.front().patches, other->tiles.front().patches) << test.family;
    EXPECT_EQ(from_keys->placeholder(), expected->placeholder());
  }
  EXPECT_EQ(ProcessorOf(WriteKeys(directory, {{"general.architecture", "gemma3"}}, {})), nullptr);
  const auto other =
      weights::Open(WriteKeys(directory, {{"general.architecture", "clip"}, {"clip.projector_type", "ldp"}},
                              {{"clip.vision.block_count", 3}}));
  ASSERT_TRUE(other);
  EXPECT_EQ(ReadProcessor(**other, nullptr).value(), nullptr);
  const auto processor = ReadProcessor(**other, other->get());
  ASSERT_FALSE(processor);
  EXPECT_EQ(processor.error().code, api::ErrorCode::kUnsupported);
}

TEST(Processor, ReadsLlamaCppsProjectorFile) {
  QUIRE_FIND_OR_SKIP(folder, "vision/gemma3_vl");
  const auto directory = ProcessorOf(folder);
  const auto file = ProcessorOf(folder / "gemma3_vl.f16.gguf", folder / "mmproj-gemma3_vl.f16.gguf");
  ASSERT_TRUE(directory != nullptr && file != nullptr);
  EXPECT_EQ(directory->Prepare(Pattern(100, 70))->digest, file->Prepare(Pattern(100, 70))->digest);
  EXPECT_EQ(directory->Prepare(Pattern(100, 70))->prompt_text, file->Prepare(Pattern(100, 70))->prompt_text);
}

std::string Refusal(const std::string& files) {
  const ModelDirectory directory(files);
  const auto opened = weights::Open(directory.path());
  if (!opened) return opened.error().message;
  const auto processor = ReadProcessor(**opened, nullptr);
  return processor ? "accepted" : processor.error().message;
}

TEST(Processor, NamesTheKeyThatIsWrong) {
  EXPECT_EQ(Refusal(OnlyFamily("lfm2_vl")), "accepted");
  EXPECT_THAT(Refusal(OnlyFamily("lfm2_vl", R"({"tile_size":"large"})")),
              EndsWith("processor_config.json: image_processor/tile_size is not an integer from 1 to 4096"));
  EXPECT_THAT(Refusal(OnlyFamily("lfm2_vl", R"({"tile_size":500})")),
              HasSubstr("tile_size is a multiple of a token's side"));
  EXPECT_THAT(Refusal(OnlyFamily("lfm2_vl", R"({"image_std":[1,0,1]})")), HasSubstr("image_std is not 0"));
  EXPECT_THAT(Refusal(OnlyFamily("lfm2_vl", R"({"resample":0})")),
              HasSubstr("image_processor/resample is not 1 (Lanczos)"));
  EXPECT_THAT(Refusal(OnlyFamily("mistral3", R"({"do_resize":false})")), HasSubstr("do_resize is true"));
}

TEST(Processor, IsNullWithoutATower) {
  const ModelDirectory text(R"({"config.json":{"model_type":"qwen3_vl"}})");
  EXPECT_EQ(ProcessorOf(text.path()), nullptr);
  const ModelDirectory unknown(OnlyFamily("other_vl"));
  EXPECT_EQ(ProcessorOf(unknown.path()), nullptr);
}

TEST(Processor, RefusesSidesThatDifferTooMuch) {
  for (const char* const family : {"qwen2_vl", "gemma4", "mistral3"}) {
    const ModelDirectory directory(OnlyFamily(family));
    const auto processor = ProcessorOf(directory.path());
    ASSERT_NE(processor, nullptr);
    const bool refused = std::string_view(family) != "gemma4";
    EXPECT_EQ(!processor->Prepare(Pattern(1, 60'000)), refused) << family;
    EXPECT_EQ(!processor->Prepare(Pattern(60'000, 1)), refused) << family;
  }
}

INSTANTIATE_TEST_SUITE_P(Images, PublishedProcessor, ::testing::Values("gemma3_vl", "lfm2_vl", "qwen3_vl"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace quire::runner::images
