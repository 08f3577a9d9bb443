// A model in one GGUF file.
#pragma once

#include <memory>

#include "api/error.h"
#include "runner/weights/mapped_file.h"
#include "runner/weights/model_files.h"

namespace quire::runner::weights {

// kBadModel when the file is broken, has no general.architecture, or is one of several splits. A file without
// tensors (a vocabulary) is fine.
api::Result<std::shared_ptr<const ModelFiles>> OpenGgufModel(MappedFile file);

}  // namespace quire::runner::weights
