// The codebooks of the IQ types: an entry is a few elements together. Facts of the format, from ggml's.
#pragma once

#include <cstdint>

namespace quire::runner::weights {

// Eight elements in 2 bits each, the first lowest: 0, 1, 2 stand for 8, 25, 43.
extern const uint16_t kGridIq2Xxs[256], kGridIq2Xs[512], kGridIq2S[1024];
// Eight elements in 2 bits each: 0, 1, 2 stand for -1, 0, 1.
extern const uint16_t kGridIq1[2048];
// Four elements in 3 bits each: indices into 4, 12, 20, 28, 36, 44, 52, 62, and the odd numbers up to 15.
extern const uint16_t kGridIq3Xxs[256], kGridIq3S[512];

}  // namespace quire::runner::weights
