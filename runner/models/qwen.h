// Qwen2, Qwen2.5 and Qwen3: Llama with biases of q, k and v, or with norms of each query and key head.
#pragma once

#include <memory>

#include "api/base/error.h"
#include "runner/models/model.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadQwen2(std::shared_ptr<const weights::ModelFiles> files);
api::Result<std::unique_ptr<Model>> LoadQwen3(std::shared_ptr<const weights::ModelFiles> files);

}  // namespace quire::runner::models
