// Vision towers against what the reference made of the same pixel values; in slices, in batches, and with
// quantized weights.
#include "runner/models/vision_tower.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runner/images/prepared_image.h"
#include "runner/models/testing/patched_model_files.h"
#include "runner/weights/mapped_file.h"
#include "runner/weights/metadata_only.h"
#include "runner/weights/model_files.h"
#include "runner/weights/quantize_on_load.h"
#include "runner/weights/safetensors.h"
#include "tests/data/test_data.h"

namespace quire::runner::models {
namespace {

namespace fs = std::filesystem;
using images::Tile;
using Files = std::shared_ptr<const weights::ModelFiles>;

class VisionGolden {
 public:
  explicit VisionGolden(const fs::path& folder)
      : file_(weights::MappedFile::Open(folder / "golden.safetensors", uint64_t{1} << 30).value()) {
    const auto entries = weights::ParseSafetensors(file_.bytes(), "golden");
    if (!entries) return;
    for (const auto& entry : *entries) entries_[entry.name] = entry;
  }

  bool Has(const std::string& name) const { return entries_.contains(name); }
  std::vector<int64_t> Shape(const std::string& name) const { return entries_.at(name).shape; }
  template <class T>
  std::vector<T> Read(const std::string& name) const {
    const auto& entry = entries_.at(name);
    std::vector<T> values(entry.data.size() / sizeof(T));
    std::memcpy(values.data(), entry.data.data(), entry.data.size());
    return values;
  }
  std::vector<float> Floats(const std::string& name) const { return Read<float>(name); }

 private:
  weights::MappedFile file_;
  std::map<std::string, weights::SafetensorsEntry> entries_;
};

// An image [3, height, width] as rows of patches.
Tile TileOfImage(const float* image, int32_t side, int32_t patch, int32_t tokens) {
  Tile tile{.rows = side / patch, .columns = side / patch, .patches = {}, .tokens = tokens};
  for (int32_t i = 0; i < tile.rows * tile.columns; ++i) {
    for (int32_t channel = 0; channel < 3; ++channel) {
      for (int32_t y = 0; y < patch; ++y) {
        const int32_t row = channel * side + i / tile.columns * patch + y;
        const float* const from = image + row * side + i % tile.columns * patch;
        tile.patches.insert(tile.patches.end(), from, from + patch);
      }
    }
  }
  return tile;
}

std::vector<Tile> Gemma3Tiles(const VisionGolden& golden, const std::string& name) {
  return {TileOfImage(golden.Floats(name + ".pixel_values").data(), 56, 7, 16)};
}

std::vector<Tile> Lfm2Tiles(const VisionGolden& golden, const std::string& name) {
  const std::vector<float> pixels = golden.Floats(name + ".pixel_values");
  const auto shapes = golden.Read<int32_t>(name + ".spatial_shapes");
  const size_t values = 16 * 16 * 3, padded = pixels.size() / (shapes.size() / 2);
  std::vector<Tile> tiles;
  for (size_t i = 0; i < shapes.size() / 2; ++i) {
    Tile& tile = tiles.emplace_back();
    tile.rows = shapes[2 * i];
    tile.columns = shapes[2 * i + 1];
    tile.tokens = tile.rows * tile.columns / 4;
    const float* const from = pixels.data() + i * padded;
    tile.patches.assign(from, from + static_cast<size_t>(tile.rows * tile.columns) * values);
  }
  return tiles;
}

std::vector<Tile> Qwen3Tiles(const VisionGolden& golden, const std::string& name) {
  const std::vector<float> pixels = golden.Floats(name + ".pixel_values");
  const auto grid = golden.Read<int32_t>(name + ".image_grid_thw");
  Tile tile{.rows = grid[1], .columns = grid[2], .patches = {}, .tokens = grid[1] * grid[2] / 4};
  const size_t plane = 8 * 8;
  for (size_t at = 0; at < pixels.size(); at += 2 * plane) {  // of two equal frames the first
    tile.patches.insert(tile.patches.end(), pixels.data() + at, pixels.data() + at + plane);
  }
  return {tile};
}

// As the small goldens of tests/data have them.
std::vector<Tile> StoredTiles(const VisionGolden& golden, const std::string& name) {
  const auto grid = golden.Read<int32_t>(name + ".grid");
  const auto tokens = static_cast<int32_t>(golden.Shape(name + ".image_embeds")[0]);
  return {
      {.rows = grid[0], .columns = grid[1], .patches = golden.Floats(name + ".patches"), .tokens = tokens}};
}

struct VisionSubject {
  const char* name;
  std::vector<Tile> (*tiles)(const VisionGolden&, const std::string&);
  int32_t layers, deepstack;
  std::vector<std::string> cases = {"c0", "c1", "c2"};
};

const std::vector<VisionSubject>& VisionSubjects() {
  static const std::vector<VisionSubject> subjects = {
      {"gemma3_vl", Gemma3Tiles, 2, 0, {"c0", "c1", "c2", "c4"}},
      {"lfm2_vl", Lfm2Tiles, 3, 0, {"c0", "c1", "c2", "c4"}},
      {"qwen3_vl", Qwen3Tiles, 4, 2, {"c0", "c1", "c2", "c4"}},
      {"gemma4", StoredTiles, 0, 0},
      {"gemma4_clipped", StoredTiles, 0, 0},
      {"mistral3", StoredTiles, 0, 0},
      {"qwen2_5_vl", StoredTiles, 0, 0},
      {"qwen2_vl", StoredTiles, 0, 0, {"c0", "c1"}},
      {"smolvlm", StoredTiles, 0, 0, {"c0", "c1"}}};
  return subjects;
}

std::vector<const Tile*> Pointers(const std::vector<Tile>& tiles) {
  std::vector<const Tile*> pointers;
  pointers.reserve(tiles.size());
  for (const Tile& tile : tiles) pointers.push_back(&tile);
  return pointers;
}

std::vector<float> Encode(VisionTower& tower, const std::vector<Tile>& tiles, int64_t rows = 0) {
  ThreadPool pool(2);
  for (const Tile& tile : tiles) EXPECT_TRUE(tower.Fits(tile));
  auto pass = tower.Start(Pointers(tiles));
  if (rows == 0) tower.Forward(*pass, pool, nullptr);
  while (!pass->done()) tower.Advance(*pass, pool, rows);
  return {pass->embeddings().begin(), pass->embeddings().end()};
}

void ExpectNearTo(std::span<const float> got, std::span<const float> expected, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i])));
  }
  EXPECT_LE(worst, tolerance) << what;
}

class KeepActivations final : public ActivationHook {
 public:
  void Activation(const std::string& name, std::span<const float> values, int64_t) override {
    kept[name].assign(values.begin(), values.end());
  }
  std::map<std::string, std::vector<float>> kept;
};

class VisionTowers : public testing::TestWithParam<size_t> {
 protected:
  static const VisionSubject& subject() { return VisionSubjects()[GetParam()]; }
  static fs::path folder() { return test_data::Find(fs::path("vision") / subject().name); }
  static Files Open(const fs::path& path) {
    auto files = weights::Open(path);
    EXPECT_TRUE(files) << files.error().message;
    return files ? *files : nullptr;
  }
  static std::unique_ptr<VisionTower> Load(const Files& model, const Files& projector = nullptr) {
    auto tower = LoadVisionTower(model, projector);
    EXPECT_TRUE(tower) << tower.error().message;
    return tower ? *std::move(tower) : nullptr;
  }
  static void ExpectGolden(VisionTower& tower, double tolerance) {
    const VisionGolden golden(folder());
    EXPECT_EQ(tower.deepstack(), subject().deepstack);
    for (const std::string& name : subject().cases) {
      const std::vector<float> got = Encode(tower, subject().tiles(golden, name));
      std::vector<float> expected = golden.Floats(name + ".image_embeds");
      for (int32_t i = 0; i < subject().deepstack; ++i) {
        const std::vector<float> more = golden.Floats(fmt::format("{}.deepstack{}", name, i));
        expected.insert(expected.end(), more.begin(), more.end());
      }
      ExpectNearTo(got, expected, tolerance, name);
    }
  }
};

#define QUIRE_VISION_OR_SKIP() QUIRE_FIND_OR_SKIP(found, fs::path("vision") / subject().name)

TEST_P(VisionTowers, ComputeWhatTheReferenceDoes) {
  QUIRE_VISION_OR_SKIP();
  const auto tower = Load(Open(found));
  ASSERT_NE(tower, nullptr);
  ExpectGolden(*tower, 1e-4);
  const VisionGolden golden(found);
  const std::vector<Tile> tiles = subject().tiles(golden, "c0");
  auto pass = tower->Start(Pointers(tiles));
  ThreadPool pool(2);
  KeepActivations hook;
  tower->Forward(*pass, pool, &hook);
  std::vector<std::string> names;
  if (subject().layers > 0) names.push_back("hidden.embed");
  for (int32_t i = 0; i < subject().layers; ++i) names.push_back(fmt::format("hidden.layer{}", i));
  for (const std::string& name : names) {
    std::vector<float> expected = golden.Floats("c0." + name);
    const std::vector<float>& got = hook.kept[name];
    expected.resize(std::min(expected.size(), got.size()));  // behind it lies padding
    ExpectNearTo(got, expected, 1e-4, name);
  }
}

TEST_P(VisionTowers, AreBitIdenticalInSlicesAndBatches) {
  QUIRE_VISION_OR_SKIP();
  const Files files = Open(found);
  const auto quantized = weights::QuantizeOnLoad(files, "q8_0", 2);
  ASSERT_TRUE(quantized) << quantized.error().message;
  const VisionGolden golden(found);
  for (const Files& one : {files, *quantized}) {
    const auto tower = Load(one);
    ASSERT_NE(tower, nullptr);
    std::vector<Tile> all;
    std::vector<std::vector<float>> alone;
    for (const std::string& name : subject().cases) {
      const std::vector<Tile> tiles = subject().tiles(golden, name);
      alone.push_back(Encode(*tower, tiles));
      for (const int64_t rows : {1, 5, 64, 100'000}) {
        EXPECT_EQ(Encode(*tower, tiles, rows), alone.back()) << name << " " << rows;
      }
      all.insert(all.end(), tiles.begin(), tiles.end());
    }
    std::vector<float> joined;
    const auto width = static_cast<size_t>(tower->hidden_size());
    for (size_t plane = 0; plane <= static_cast<size_t>(tower->deepstack()); ++plane) {
      for (const auto& image : alone) {
        const size_t size = image.size() / (1 + static_cast<size_t>(tower->deepstack()));
        EXPECT_EQ(size % width, 0U);
        joined.insert(joined.end(), image.data() + plane * size, image.data() + (plane + 1) * size);
      }
    }
    EXPECT_EQ(Encode(*tower, all, 7), joined);
  }
}

TEST_P(VisionTowers, TakeQuantizedWeights) {
  QUIRE_VISION_OR_SKIP();
  const Files files = Open(found);
  const auto quantized = weights::QuantizeOnLoad(files, "q8_0", 2);
  ASSERT_TRUE(quantized) << quantized.error().message;
  const auto tower = Load(files), smaller = Load(*quantized);
  ASSERT_TRUE(tower && smaller);
  EXPECT_LT(smaller->weight_bytes(), tower->weight_bytes());
  const VisionGolden golden(found);
  const std::vector<Tile> tiles = subject().tiles(golden, "c0");
  const std::vector<float> expected = Encode(*tower, tiles), got = Encode(*smaller, tiles);
  double error = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - static_cast<double>(expected[i]), 2);
    size += std::pow(static_cast<double>(expected[i]), 2);
  }
  EXPECT_GT(error, 0);
  EXPECT_LT(error, 5e-3 * size);
}

class VisionProjectorFiles : public VisionTowers {};

TEST_P(VisionProjectorFiles, ComputeWhatTheReferenceDoes) {
  QUIRE_VISION_OR_SKIP();
  const fs::path model = found / fmt::format("{}.f16.gguf", subject().name),
                 projector = found / fmt::format("mmproj-{}.f16.gguf", subject().name);
  const auto tower = Load(Open(model), Open(projector));
  ASSERT_NE(tower, nullptr);
  ExpectGolden(*tower, 1e-3);
  const auto alone = LoadVisionTower(Open(model), nullptr);
  ASSERT_TRUE(alone);
  EXPECT_EQ(*alone, nullptr);
}

TEST_P(VisionTowers, AreMeasuredWithoutWeights) {
  QUIRE_VISION_OR_SKIP();
  const Files files = Open(found);
  const auto measured = weights::MetadataOnly(files);
  ASSERT_TRUE(measured) << measured.error().message;
  const auto tower = Load(files), metadata = Load(*measured);
  ASSERT_TRUE(tower && metadata);
  EXPECT_GT(tower->parameters(), 0);
  EXPECT_EQ(metadata->parameters(), tower->parameters());
  EXPECT_EQ(metadata->weight_bytes(), tower->weight_bytes());
  EXPECT_EQ(metadata->resident_bytes(), tower->resident_bytes());
}

TEST_P(VisionTowers, RefuseTilesOfAnotherShape) {
  QUIRE_VISION_OR_SKIP();
  const auto tower = Load(Open(found));
  ASSERT_NE(tower, nullptr);
  const Tile good = subject().tiles(VisionGolden(found), "c0").front();
  EXPECT_TRUE(tower->Fits(good));
  Tile tile = good;
  tile.patches.pop_back();
  EXPECT_FALSE(tower->Fits(tile));
  tile = good;
  ++tile.rows;
  EXPECT_FALSE(tower->Fits(tile));
  tile = good;
  --tile.tokens;
  EXPECT_FALSE(tower->Fits(tile));
  EXPECT_FALSE(tower->Fits({}));
}

TEST_P(VisionTowers, NameAMissingTensor) {
  QUIRE_VISION_OR_SKIP();
  auto files = std::make_shared<test::PatchedModelFiles>(found.string());
  std::string removed;
  for (const auto& tensor : files->tensors()) {
    if (tensor.name.find("vis") != std::string::npos && tensor.name.find(".1.") != std::string::npos &&
        tensor.name.find("proj") != std::string::npos && tensor.name.ends_with(".weight")) {
      removed = tensor.name;
    }
  }
  ASSERT_FALSE(removed.empty());
  files->Remove(removed);
  const auto tower = LoadVisionTower(files, nullptr);
  ASSERT_FALSE(tower);
  EXPECT_EQ(tower.error().code, api::ErrorCode::kBadModel);
  EXPECT_THAT(tower.error().message, testing::HasSubstr(removed));
}

std::string NameOfVisionSubject(const testing::TestParamInfo<size_t>& one) {
  return VisionSubjects()[one.param].name;
}

INSTANTIATE_TEST_SUITE_P(All, VisionTowers, testing::Range<size_t>(0, VisionSubjects().size()),
                         NameOfVisionSubject);
INSTANTIATE_TEST_SUITE_P(All, VisionProjectorFiles, testing::Values(0, 2), NameOfVisionSubject);

}  // namespace
}  // namespace quire::runner::models
