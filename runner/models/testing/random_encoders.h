// Encoders with random weights for texts of any length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runner/models/model.h"
#include "runner/models/testing/patched_model_files.h"

namespace quire::runner::models::test {

inline constexpr int32_t kRandomVocab = 64;

// Norms behind, positions from a table, biases.
std::shared_ptr<PatchedModelFiles> MakeLongBert(int32_t context);
// Norms before, rotary positions of two kinds, windows in most layers.
std::shared_ptr<PatchedModelFiles> MakeLongModernBert(int32_t context);

std::vector<TokenId> RandomTokens(size_t count, uint32_t seed);

}  // namespace quire::runner::models::test
