// The tokenizer of a model's files, whichever format they have.
#pragma once

#include <memory>

#include "api/base/error.h"
#include "runner/tokenizer/tokenizer.h"
#include "runner/weights/model_files.h"

namespace quire::runner::tokenizer {

// kBadModel names the file and the field.
api::Result<std::shared_ptr<const Tokenizer>> LoadTokenizer(const weights::ModelFiles& files);

}  // namespace quire::runner::tokenizer
