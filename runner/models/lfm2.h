// LFM2 and LFM2-MoE: blocks of a gated short convolution or grouped-query attention, each followed by a
// SwiGLU or a mixture of them.
#pragma once

#include <memory>

#include "api/base/error.h"
#include "runner/models/model.h"

namespace quire::runner::models {

// Cache layout: one full-attention group that holds the attention layers in order, one recurrent layer per
// convolution.
api::Result<std::unique_ptr<Model>> LoadLfm2(std::shared_ptr<const weights::ModelFiles> files);

}  // namespace quire::runner::models
