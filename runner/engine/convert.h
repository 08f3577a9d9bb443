// A model written in another form, for a store.
#pragma once

#include <functional>

#include "api/base/error.h"
#include "api/ipc/messages.h"
#include "runner/weights/model_source.h"

namespace quire::runner::engine {

// Carries out ConvertModel for the model that `from` reads; `threads` >= 1 quantize. kBadModel names the
// problem of the model, including an unsupported architecture; kInvalidArgument: no such quantization.
// `on_progress` is called with the fraction written.
api::Result<void> WriteConverted(const weights::ModelSource& from, const api::ipc::ConvertModel& request,
                                 int threads, const std::function<void(float fraction)>& on_progress);

}  // namespace quire::runner::engine
