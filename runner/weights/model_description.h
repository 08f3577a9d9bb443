// The description of a model for /api/show, from its files alone.
#pragma once

#include "api/ipc/messages.h"
#include "runner/weights/model_files.h"

namespace quire::runner::weights {

// Never sets `error`.
//  - model_info_json: the GGUF key/values sorted by key, without general.name and tokenizer.chat_template,
//    with general.parameter_count; arrays of more than 5 elements are null unless `verbose`. A Hugging Face
//    directory gets the same keys made from its config.json.
//  - tensors_json: [{"name", "type", "shape"}], shape with the fastest-running dimension first, as in GGUF.
//  - quantization: from general.file_type, else the type of most elements; empty without tensors.
//  - sampling_json: what the files recommend (generation_defaults.h), with `sampling`.
//  - repairs: those of the files, and with `sampling` what of the recommendations is not obeyed.
api::ipc::Inspected Describe(const ModelFiles& files, bool verbose, bool sampling = true);

}  // namespace quire::runner::weights
