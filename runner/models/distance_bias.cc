#include "runner/models/distance_bias.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>

#include "runner/kernels/encoder_ops.h"

namespace quire::runner::models {

int32_t BiasBucket(int32_t distance) {
  constexpr int32_t kHalf = kBiasBuckets / 2, kExact = kHalf / 2;
  const int32_t away = std::min(distance < 0 ? -distance : distance, kernels::kBiasReach);
  const int32_t half = distance > 0 ? kHalf : 0;
  if (away < kExact) return half + away;
  // floor(2 log2(away / 8)) in integers: in floats it is wrong where the quotient is a power of 2.
  const auto squares = static_cast<uint32_t>(away * away / (kExact * kExact));
  const int32_t half_octaves = static_cast<int32_t>(std::bit_width(squares)) - 1;
  return half + std::min(kExact + half_octaves, kHalf - 1);
}

std::vector<float> SpreadBiases(std::span<const float> table, int32_t heads) {
  assert(table.size() == static_cast<size_t>(kBiasBuckets) * static_cast<size_t>(heads));
  std::vector<float> biases;
  biases.reserve(static_cast<size_t>(heads) * (2 * kernels::kBiasReach + 1));
  for (int32_t head = 0; head < heads; ++head) {
    for (int32_t distance = -kernels::kBiasReach; distance <= kernels::kBiasReach; ++distance) {
      biases.push_back(table[static_cast<size_t>(BiasBucket(distance) * heads + head)]);
    }
  }
  return biases;
}

}  // namespace quire::runner::models
