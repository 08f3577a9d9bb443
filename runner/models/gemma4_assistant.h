// Gemma 4's assistant: a small Gemma 4 whose layers have no keys of their own.
#pragma once

#include <memory>

#include "api/base/error.h"
#include "runner/models/draft_model.h"

namespace quire::runner::models {

// Its sliding and full layers attend to what the target's last layer of that kind has cached, all of it.
api::Result<std::unique_ptr<DraftModel>> LoadGemma4Assistant(std::shared_ptr<const weights::ModelFiles> files,
                                                             const Model& target);

}  // namespace quire::runner::models
