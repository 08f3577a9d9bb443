// Qwen3-Next and Qwen3.5, dense and with experts: three gated delta nets to each gated attention.
#pragma once

#include <memory>

#include "api/base/error.h"
#include "runner/models/draft_model.h"
#include "runner/models/model.h"

namespace quire::runner::models {

// Cache layout: one full-attention group, one recurrent layer per delta net.
api::Result<std::unique_ptr<Model>> LoadQwen3Next(std::shared_ptr<const weights::ModelFiles> files);

// The checkpoint's "mtp." tensors, or the first block of a GGUF file's nextn_predict_layers; null where there
// are none, or the target is of another family.
api::Result<std::unique_ptr<MtpLayer>> LoadQwen3NextMtp(std::shared_ptr<const weights::ModelFiles> files,
                                                        const Model& target, api::KvType kv_type);

}  // namespace quire::runner::models
