// Experts of checkpoints that store their matrices transposed.
#pragma once

#include <cstdint>

#include "runner/models/moe.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {

// Fills gate, up and down from floats: `gate_up` [experts, hidden, gate and up], `down` [experts, width,
// hidden]; complete names. REQUIRES: moe->chosen is set.
void BindTransposedExperts(const TensorScope& scope, TensorName gate_up, TensorName down, int64_t experts,
                           int64_t hidden, int64_t width, MixtureOfExperts* moe);

}  // namespace quire::runner::models
