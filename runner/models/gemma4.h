// Gemma 4: sliding and full attention with heads of two sizes, keys shared between layers, inputs of each
// layer's own from the token, experts beside the feed-forward layer: each where a model has it.
#pragma once

#include <memory>

#include "api/base/error.h"
#include "runner/models/model.h"

namespace quire::runner::models {

// Cache layout: one group per kind of attention; layers that share keys have no binding of their own.
api::Result<std::unique_ptr<Model>> LoadGemma4(std::shared_ptr<const weights::ModelFiles> files);

}  // namespace quire::runner::models
