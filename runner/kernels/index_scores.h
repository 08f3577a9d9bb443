// The scores of index keys, for selection.cc.
#pragma once

#include <cstddef>

#include "runner/kernels/selection.h"

namespace quire::runner::kernels {

// Query heads whose products with a tile of keys are kept at once.
inline constexpr size_t kIndexRows = 96;

// Neighboring rows of a sequence and the index keys [first, last).
struct IndexTask {
  size_t sequence;
  size_t rows;
  cache::Position first, last;
  const float* q;        // [rows, heads, head_dim]
  const float* weights;  // [rows, heads], or null: all 1
  float* scores;         // [rows, lists, stride]: of key k in place k
  size_t stride;
};

// On any thread.
void ScoreIndexKeys(const AttentionLayer& at, const IndexRule& rule, const IndexTask& task);

}  // namespace quire::runner::kernels
