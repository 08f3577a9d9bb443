// Goldens of models with a vision tower (kind "vision"): conversations with pictures, what the tower made of
// them, and the text model's logits.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "tests/golden/golden_arrays.h"
#include "tests/golden/golden_file.h"

namespace quire::runner::golden {

// A conversation.
struct VisionCase {
  std::vector<models::TokenId> ids;
  int64_t image_tokens = 0;
  std::string rendered;          // the prompt as the template writes it: one placeholder for each picture
  std::vector<size_t> pictures;  // of VisionGolden::pictures
};

struct VisionGolden {
  // The cases as prompts of the text model: the rows of images are what the reference's tower made of them.
  GoldenFile text;
  std::vector<VisionCase> cases;
  std::vector<std::string> pictures;  // file names
  models::TokenId image_token = 0;    // whose rows are those of images
  Arrays arrays;
};

// Whether the directory's golden is of a model with a vision tower.
bool IsVisionGolden(const std::filesystem::path& directory);

// kNotFound and kBadModel name the file.
api::Result<VisionGolden> ReadVisionGolden(const std::filesystem::path& directory);

}  // namespace quire::runner::golden
