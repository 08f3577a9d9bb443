// A model written in another form, for a store.
#pragma once

#include <functional>
#include <string>

#include "api/base/error.h"
#include "runner/weights/model_source.h"
#include "runner/weights/output_file.h"

namespace quire::runner::engine {

// Carries out ConvertModel for the model that `from` reads, into `to`; `threads` >= 1 quantize. kBadModel
// names the problem of the model, including an unsupported architecture; kInvalidArgument: no such
// quantization. `on_progress` is called with the fraction written.
api::Result<void> WriteConverted(const weights::ModelSource& from, weights::OutputFile to,
                                 const std::string& quantization, int threads,
                                 const std::function<void(float fraction)>& on_progress);

}  // namespace quire::runner::engine
