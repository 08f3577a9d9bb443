// Mistral: Llama with a sliding window.
#pragma once

#include <memory>

#include "api/base/error.h"
#include "runner/models/model.h"

namespace quire::runner::models {

// In every layer, unless layer_types say otherwise.
api::Result<std::unique_ptr<Model>> LoadMistral(std::shared_ptr<const weights::ModelFiles> files);

}  // namespace quire::runner::models
