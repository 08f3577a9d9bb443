#include "runner/models/testing/random_towers.h"

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "runner/models/testing/moe_models.h"

namespace quire::runner::models::test {
namespace {

Json ReadTower(const std::string& family) {
  std::ifstream file("tests/data/vision.json");
  return Json::parse(file).at(family);
}

void AddNoise(PatchedModelFiles& files, const std::string& name, const Json& values) {
  const auto shape = values[0].get<std::vector<int64_t>>();
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  const std::vector<float> numbers = Noise(name, count, values[1].get<float>(), values[2].get<float>());
  std::vector<std::byte> bytes(count * sizeof(float));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  files.Add(name, weights::DataType::kF32, shape, std::move(bytes));
}

}  // namespace

std::vector<float> Noise(const std::string& seed, size_t count, float offset, float scale) {
  uint32_t state = 0;
  for (const char byte : seed) state = state * 31 + static_cast<unsigned char>(byte);
  std::vector<float> values(count);
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = offset + scale * (static_cast<float>(state >> 24U) - 128) / 128;
  }
  return values;
}

std::shared_ptr<PatchedModelFiles> MakeRandomTower(const std::string& family) {
  const Json tower = ReadTower(family);
  auto files = std::make_shared<PatchedModelFiles>(kMoeBase);
  std::vector<std::string> old;
  for (const Tensor& tensor : files->tensors()) old.push_back(tensor.name);
  for (const std::string& name : old) files->Remove(name);
  files->json = tower.at("config");
  const Json& vision = files->json.at("vision_config");
  const int layers = vision.contains("depth") ? vision.at("depth") : vision.at("num_hidden_layers");
  for (const auto& [name, values] : tower.at("tensors").items()) {
    const size_t layer = name.find("{}");
    for (int i = 0; i < (layer == std::string::npos ? 1 : layers); ++i) {
      std::string full = name;
      if (layer != std::string::npos) full.replace(layer, 2, std::to_string(i));
      AddNoise(*files, full, values);
    }
  }
  return files;
}

std::vector<TowerCase> ReadTowerCases(const std::string& family) {
  const Json tower = ReadTower(family);
  const bool positive = tower.at("config").at("model_type") == "gemma4";
  const size_t width = tower.at("config").at("text_config").at("hidden_size");
  std::vector<TowerCase> cases;
  for (const Json& json : tower.at("cases")) {
    TowerCase one;
    one.tile.rows = json.at("grid")[0];
    one.tile.columns = json.at("grid")[1];
    const auto count = static_cast<size_t>(one.tile.rows * one.tile.columns) * 48;
    one.tile.patches =
        Noise("c" + std::to_string(cases.size()), count, positive ? 0.5F : 0, positive ? 0.5F : 1);
    one.image_embeds = json.at("image_embeds").get<std::vector<float>>();
    one.tile.tokens = static_cast<int32_t>(one.image_embeds.size() / width);
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace quire::runner::models::test
