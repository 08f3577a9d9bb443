// The experts of gpt-oss, which its checkpoints store as no other family does: gate and up rows in turn;
// floats with inputs before outputs, or MXFP4 as blocks and scales apart.
#pragma once

#include <cstdint>

#include "runner/models/mixture_config.h"

namespace quire::runner::models {

// Fills the matrices and biases of the experts. REQUIRES: moe->chosen is set.
void BindGptOssExperts(const TensorScope& scope, int64_t hidden, const MixtureConfig& config,
                       MixtureOfExperts* moe);

}  // namespace quire::runner::models
