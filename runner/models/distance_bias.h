// Biases of attention that depend on how far a key is from its query (Raffel et al. 2020, T5; Song et al.
// 2020, MPNet).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace quire::runner::models {

inline constexpr int32_t kBiasBuckets = 32;

// The bucket of a distance, key - query: half of the buckets for keys behind the query. The first 8 of a half
// hold one distance each, the others half an octave each, the last one all that is beyond.
int32_t BiasBucket(int32_t distance);
// As TwoWayAttention::distance_bias wants them, from a checkpoint's table [kBiasBuckets, heads].
std::vector<float> SpreadBiases(std::span<const float> table, int32_t heads);

}  // namespace quire::runner::models
