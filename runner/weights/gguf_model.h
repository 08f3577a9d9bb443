// A model in one GGUF file or in several splits of it.
#pragma once

#include <memory>

#include "api/base/error.h"
#include "runner/weights/model_files.h"
#include "runner/weights/model_source.h"

namespace quire::runner::weights {

// kBadModel when the file is broken or has no general.architecture. Of a model in several files
// ("split.count" above 1) `source` is the first, NAME-00001-of-0000N.gguf, whose metadata counts; the others
// lie beside it, and kBadModel names the one that is missing or does not belong. A file without tensors (a
// vocabulary) is fine. A file that holds a packed Hugging Face model is opened as that.
api::Result<std::shared_ptr<const ModelFiles>> OpenGgufModel(const ModelSource& source);

}  // namespace quire::runner::weights
