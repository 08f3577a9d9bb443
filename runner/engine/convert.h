// A model written in another form, for a store.
#pragma once

#include <functional>

#include "api/base/error.h"
#include "api/ipc/messages.h"
#include "runner/weights/model_source.h"

namespace quire::runner::engine {

// What ConvertModel asks for, of the model that `from` reads; `threads` >= 1 quantize. kBadModel names what
// is wrong with the model, be it only that nothing here runs its architecture; kInvalidArgument: no such
// quantization. `on_progress` is called with the fraction written.
api::Result<void> WriteConverted(const weights::ModelSource& from, const api::ipc::ConvertModel& request,
                                 int threads, const std::function<void(float fraction)>& on_progress);

}  // namespace quire::runner::engine
