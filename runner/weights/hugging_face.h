// A model in a Hugging Face directory: config.json, model.safetensors or its shards, and the tokenizer's
// files.
#pragma once

#include <memory>

#include "api/base/error.h"
#include "runner/weights/model_files.h"
#include "runner/weights/model_source.h"

namespace quire::runner::weights {

// kBadModel "FILE: reason" when config.json or the weights are missing or any file is broken.
// generation_config.json, tokenizer_config.json, tokenizer.json and chat_template.jinja may be absent. Files
// may be symlinks, as in the Hugging Face cache; shards are in the directory and are named *.safetensors,
// because the sender of descriptors identifies them by it.
api::Result<std::shared_ptr<const ModelFiles>> OpenHuggingFace(const ModelSource& source);

}  // namespace quire::runner::weights
