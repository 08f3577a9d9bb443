// What makes rows of a text model's prompt of the states of patches: it joins the patches of a square, and
// maps them to the text model's width.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runner/models/encoder_mlp.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"

namespace quire::runner::models {

enum class PatchJoin : uint8_t {
  kConcat,   // the states of the square's patches one after the other, row by row
  kByValue,  // all their first values, all their second ones, ...
  kMean,
};

struct VisionProjector {
  struct Work {
    Scratch patches, joined, folded, wide;
    kernels::QuantizedActivations quantized;
  };

  PatchJoin join = PatchJoin::kConcat;
  int32_t side = 1;                             // of a square, in patches
  Norm before, after;                           // of a patch, and of what is joined; or none
  std::vector<float> shift = {}, stretch = {};  // [width] of it, or empty: (x - shift) * stretch
  float scale = 1;                              // of what is joined
  Linear fold = {};                             // in front of `first`, without an activation; or none
  Linear first = {};                            // or none
  EncoderActivation activation = EncoderActivation::kGeluErf;
  Linear out = {};

  int64_t patches() const { return int64_t{side} * side; }
  // y [rows of squares, text width]. states [.., width]; row_of: where each patch of each square is among
  // them. Each row's result depends on its patches alone.
  void Run(ThreadPool& pool, std::span<const float> states, int64_t width, std::span<const int32_t> row_of,
           Work& work, std::span<float> y) const;
  // Floats of Work for each square of patches of `width`.
  int64_t FloatsOf(int64_t width) const;
};

}  // namespace quire::runner::models
