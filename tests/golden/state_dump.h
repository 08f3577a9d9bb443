// The contents of a model's caches for one sequence, in the names and shapes of reference dumps.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cache/write.h"
#include "runner/models/model.h"

namespace quire::runner::golden {

// "layer3.k" and "layer3.v" [kv_heads, tokens, head_dim] of the tokens that the next one would see;
// "layer3.conv" [channels, kernel] less the oldest column, [channels, kernel - 1], which no token needs any
// more; "layer3.delta" [value_heads, key_dim, value_dim]. Only the first of several layers that share keys
// has them, and none with latent attention, whose rows are of no reference.
using StateDump = std::map<std::string, std::vector<float>>;

// For sequence 0 of the view.
StateDump DumpStates(const models::Model& model, const cache::StepView& view);

}  // namespace quire::runner::golden
