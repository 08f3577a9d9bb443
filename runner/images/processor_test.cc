// What processors make of images, against recorded results of transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/images/decode.h"
#include "runner/images/image_processor.h"
#include "runner/weights/model_files.h"
#include "runner/weights/safetensors.h"
#include "tests/data/test_data.h"

namespace quire::runner::images {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

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

// The values of pixel_values as tiles have them: without padding, and without the second frame of Qwen's pairs.
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

INSTANTIATE_TEST_SUITE_P(Images, PublishedProcessor, ::testing::Values("gemma3_vl", "lfm2_vl", "qwen3_vl"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace quire::runner::images
