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
#include "runner/models/testing/random_towers.h"
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

struct VisionSubject {
  const char* name;
  std::vector<Tile> (*tiles)(const VisionGolden&, const std::string&);  // null: of random_towers.h
  int32_t layers = 0, deepstack = 0;                                    // that the golden has
};

const std::vector<VisionSubject>& VisionSubjects() {
  static const std::vector<VisionSubject> subjects = {{"gemma3_vl", Gemma3Tiles, 2, 0},
                                                      {"lfm2_vl", Lfm2Tiles, 3, 0},
                                                      {"qwen3_vl", Qwen3Tiles, 4, 2},
                                                      {"gemma4", nullptr},
                                                      {"mistral3", nullptr},
                                                      {"qwen2_5_vl", nullptr},
                                                      {"qwen2_vl", nullptr},
                                                      {"smolvlm", nullptr}};
  return subjects;
}

struct VisionCase {
  std::string name;
  std::vector<Tile> tiles;
  std::vector<float> expected;  // all planes
};

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
  void SetUp() override {
    if (subject().tiles == nullptr) return ReadRandomCases();
    folder_ = test_data::Find(fs::path("vision") / subject().name);
    if (folder_.empty())
      GTEST_SKIP() << "the fixtures have no vision/" << subject().name << "; see QUIRE_FIXTURES";
    const VisionGolden golden(folder_);
    for (const std::string name : {"c0", "c1", "c2", "c4"}) {
      VisionCase& one = cases_.emplace_back();
      one = {name, subject().tiles(golden, name), golden.Floats(name + ".image_embeds")};
      for (int32_t i = 0; i < subject().deepstack; ++i) {
        const std::vector<float> more = golden.Floats(fmt::format("{}.deepstack{}", name, i));
        one.expected.insert(one.expected.end(), more.begin(), more.end());
      }
    }
  }
  void ReadRandomCases() {
    for (auto& one : test::ReadTowerCases(subject().name)) {
      cases_.push_back(
          {fmt::format("c{}", cases_.size()), {std::move(one.tile)}, std::move(one.image_embeds)});
    }
  }
  static Files Open(const fs::path& path) {
    auto files = weights::Open(path);
    EXPECT_TRUE(files) << files.error().message;
    return files ? *files : nullptr;
  }
  Files Checkpoint() const {
    return subject().tiles == nullptr ? test::MakeRandomTower(subject().name) : Open(folder_);
  }
  static std::unique_ptr<VisionTower> Load(const Files& model, const Files& projector = nullptr) {
    auto tower = LoadVisionTower(model, projector);
    EXPECT_TRUE(tower) << tower.error().message;
    return tower ? *std::move(tower) : nullptr;
  }
  void ExpectGolden(VisionTower& tower, double tolerance) const {
    EXPECT_EQ(tower.deepstack(), subject().deepstack);
    ASSERT_FALSE(cases_.empty());
    for (const VisionCase& one : cases_)
      ExpectNearTo(Encode(tower, one.tiles), one.expected, tolerance, one.name);
  }

  fs::path folder_;
  std::vector<VisionCase> cases_;
};

TEST_P(VisionTowers, ComputeWhatTheReferenceDoes) {
  const auto tower = Load(Checkpoint());
  ASSERT_NE(tower, nullptr);
  ExpectGolden(*tower, 1e-4);
  if (subject().layers == 0) return;
  const VisionGolden golden(folder_);
  auto pass = tower->Start(Pointers(cases_[0].tiles));
  ThreadPool pool(2);
  KeepActivations hook;
  tower->Forward(*pass, pool, &hook);
  std::vector<std::string> names = {"hidden.embed"};
  for (int32_t i = 0; i < subject().layers; ++i) names.push_back(fmt::format("hidden.layer{}", i));
  for (const std::string& name : names) {
    std::vector<float> expected = golden.Floats("c0." + name);
    const std::vector<float>& got = hook.kept[name];
    expected.resize(std::min(expected.size(), got.size()));  // behind it lies padding
    ExpectNearTo(got, expected, 1e-4, name);
  }
}

TEST_P(VisionTowers, AreBitIdenticalInSlicesAndBatches) {
  const auto quantized = weights::QuantizeOnLoad(Checkpoint(), "q8_0", 2);
  ASSERT_TRUE(quantized) << quantized.error().message;
  for (const Files& files : {Checkpoint(), *quantized}) {
    const auto tower = Load(files);
    ASSERT_NE(tower, nullptr);
    std::vector<Tile> all;
    std::vector<std::vector<float>> alone;
    for (const VisionCase& one : cases_) {
      alone.push_back(Encode(*tower, one.tiles));
      for (const int64_t rows : {1, 5, 64, 100'000}) {
        EXPECT_EQ(Encode(*tower, one.tiles, rows), alone.back()) << one.name << " " << rows;
      }
      all.insert(all.end(), one.tiles.begin(), one.tiles.end());
    }
    std::vector<float> joined;
    const size_t planes = 1 + static_cast<size_t>(tower->deepstack());
    for (size_t plane = 0; plane < planes; ++plane) {
      for (const auto& image : alone) {
        const size_t size = image.size() / planes;
        joined.insert(joined.end(), image.data() + plane * size, image.data() + (plane + 1) * size);
      }
    }
    EXPECT_EQ(Encode(*tower, all, 7), joined);
  }
}

TEST_P(VisionTowers, TakeQuantizedWeights) {
  const auto quantized = weights::QuantizeOnLoad(Checkpoint(), "q8_0", 2);
  ASSERT_TRUE(quantized) << quantized.error().message;
  const auto tower = Load(Checkpoint()), smaller = Load(*quantized);
  ASSERT_TRUE(tower && smaller);
  EXPECT_LT(smaller->weight_bytes(), tower->weight_bytes());
  const std::vector<float> expected = Encode(*tower, cases_[0].tiles),
                           got = Encode(*smaller, cases_[0].tiles);
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
  const fs::path model = folder_ / fmt::format("{}.f16.gguf", subject().name),
                 projector = folder_ / fmt::format("mmproj-{}.f16.gguf", subject().name);
  const auto tower = Load(Open(model), Open(projector));
  ASSERT_NE(tower, nullptr);
  ExpectGolden(*tower, 1e-3);
  const auto alone = LoadVisionTower(Open(model), nullptr);
  ASSERT_TRUE(alone);
  EXPECT_EQ(*alone, nullptr);
}

TEST_P(VisionTowers, AreMeasuredWithoutWeights) {
  const Files files = Checkpoint();
  const auto measured = weights::MetadataOnly(files);
  ASSERT_TRUE(measured) << measured.error().message;
  const auto metadata = Load(*measured), tower = Load(files);
  ASSERT_TRUE(tower && metadata);
  EXPECT_GT(tower->parameters(), 0);
  EXPECT_EQ(metadata->parameters(), tower->parameters());
  EXPECT_EQ(metadata->weight_bytes(), tower->weight_bytes());
  EXPECT_EQ(metadata->resident_bytes(), tower->resident_bytes());
}

TEST_P(VisionTowers, RefuseTilesOfAnotherShape) {
  const auto tower = Load(Checkpoint());
  ASSERT_NE(tower, nullptr);
  const Tile good = cases_[0].tiles.front();
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
  const bool random = subject().tiles == nullptr;
  auto files = random ? test::MakeRandomTower(subject().name)
                      : std::make_shared<test::PatchedModelFiles>(folder_.string());
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
