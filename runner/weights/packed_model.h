// A Hugging Face model in one file, as a store keeps it: a GGUF file that holds the tensors under their own
// names and the texts of the directory's files. What reads it sees the directory.
#pragma once

#include <functional>
#include <memory>

#include "api/base/error.h"
#include "runner/weights/gguf.h"
#include "runner/weights/mapped_file.h"
#include "runner/weights/model_files.h"
#include "runner/weights/output_file.h"

namespace quire::runner::weights {

// Writes the model of a Hugging Face directory into a file. kBadModel names what is wrong with the directory;
// kUnsupported: a tokenizer without tokenizer.json; kInternal when writing fails. `on_progress`, unless
// empty, is called with the fraction written.
api::Result<void> PackHuggingFace(const ModelSource& directory, OutputFile to,
                                  const std::function<void(float fraction)>& on_progress = {});

// Whether a GGUF file is such a one.
bool IsPacked(const GgufContents& contents);

// REQUIRES: IsPacked(); `contents` is of `file`. kBadModel names the file and what is wrong with it.
api::Result<std::shared_ptr<const ModelFiles>> OpenPacked(MappedFile file, GgufContents contents);

}  // namespace quire::runner::weights
