// Gemma 2 and 3: sandwiched norms, GeGLU, and sliding between full attention.
#pragma once

#include <memory>

#include "api/base/error.h"
#include "runner/models/model.h"

namespace quire::runner::models {

// Every other layer slides; scores and logits are capped.
api::Result<std::unique_ptr<Model>> LoadGemma2(std::shared_ptr<const weights::ModelFiles> files);
// Five of six layers slide, with rotary angles of their own; query and key heads are normed.
api::Result<std::unique_ptr<Model>> LoadGemma3(std::shared_ptr<const weights::ModelFiles> files);

}  // namespace quire::runner::models
