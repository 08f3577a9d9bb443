// Goldens of models with a vision tower (kind "vision"): conversations with pictures, what the tower made of
// them, and the text model's logits.
#pragma once

#include <filesystem>

#include "api/base/error.h"
#include "tests/golden/golden_file.h"

namespace quire::runner::golden {

// Whether the directory's golden is of a model with a vision tower.
bool IsVisionGolden(const std::filesystem::path& directory);

// The cases as prompts of the text model: the rows of images are what the reference's tower made of them.
// kNotFound and kBadModel name the file.
api::Result<GoldenFile> ReadVisionGolden(const std::filesystem::path& directory);

}  // namespace quire::runner::golden
