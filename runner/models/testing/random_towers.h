// The vision towers of tests/data/vision.json, whose weights and patches are noise, and what the reference
// makes of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runner/images/prepared_image.h"
#include "runner/models/testing/patched_model_files.h"

namespace quire::runner::models::test {

// As make_tiny_vision.py has it: `offset` and `scale` times numbers in [-1, 1).
std::vector<float> Noise(const std::string& seed, size_t count, float offset, float scale);

// A checkpoint in safetensors. To be loaded once: what is loaded is given back to the system.
std::shared_ptr<PatchedModelFiles> MakeRandomTower(const std::string& family);

struct TowerCase {
  images::Tile tile;
  std::vector<float> image_embeds;
};
// In the order of the file.
std::vector<TowerCase> ReadTowerCases(const std::string& family);

}  // namespace quire::runner::models::test
