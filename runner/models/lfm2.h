// LFM2: blocks of a gated short convolution or grouped-query attention, each followed by a SwiGLU.
#pragma once

#include <memory>

#include "api/error.h"
#include "runner/models/model.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models {

// Dense LFM2 from a Hugging Face directory ("lfm2") or GGUF ("lfm2"). Cache layout: one full-attention group
// that holds the attention layers in order, one recurrent layer per convolution.
api::Result<std::unique_ptr<Model>> LoadLfm2(std::shared_ptr<const weights::ModelFiles> files);

}  // namespace quire::runner::models
