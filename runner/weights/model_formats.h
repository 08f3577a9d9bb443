// The openers behind Open() (model_files.h), one per format of a model.
#pragma once

#include <cstdint>
#include <memory>

#include "api/base/error.h"
#include "runner/weights/model_files.h"
#include "runner/weights/model_source.h"

namespace quire::runner::weights {

// Whether keys and tensors have the names of the file, or those that models and tokenizers read (dialects/).
enum class Spelling : uint8_t { kOfFile, kRepaired };

// A model in one GGUF file or in several splits of it. kBadModel when the file is broken or has no
// general.architecture. Of a model in several files ("split.count" above 1) `source` is the first,
// NAME-00001-of-0000N.gguf, whose metadata counts; the others lie beside it, and kBadModel names the one that
// is missing or does not belong. A file without tensors (a vocabulary) is fine. A file that holds a packed
// Hugging Face model is opened as that. kRepaired: kBadModel where the metadata contradicts itself.
api::Result<std::shared_ptr<const ModelFiles>> OpenGgufModel(const ModelSource& source,
                                                             Spelling spelling = Spelling::kRepaired);

// A model in a Hugging Face directory: config.json, model.safetensors or its shards, and the tokenizer's
// files. kBadModel "FILE: reason" when config.json or the weights are missing or any file is broken.
// generation_config.json, tokenizer_config.json, special_tokens_map.json, tokenizer.json and
// chat_template.jinja may be absent. Files may be symlinks, as in the Hugging Face cache; shards are in the
// directory and are named *.safetensors, because the sender of descriptors identifies them by it.
api::Result<std::shared_ptr<const ModelFiles>> OpenHuggingFace(const ModelSource& source);

}  // namespace quire::runner::weights
