// Qwen3-Next and Qwen3.5, dense and with experts: three gated delta nets to each gated attention.
#pragma once

#include <memory>

#include "api/error.h"
#include "runner/models/model.h"

namespace quire::runner::models {

// Cache layout: one full-attention group, one recurrent layer per delta net. A checkpoint's layers for
// predicting several tokens at once are left alone.
api::Result<std::unique_ptr<Model>> LoadQwen3Next(std::shared_ptr<const weights::ModelFiles> files);

}  // namespace quire::runner::models
