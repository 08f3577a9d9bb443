// What a runner does with a model beside serving it. On the thread that reads the model.
#pragma once

#include "api/ipc/messages.h"
#include "runner/engine/process/host_state.h"
#include "runner/engine/process/link.h"

namespace quire::runner::engine {

// Describes it.
api::ipc::Inspected Inspect(const HostState& state, const api::ipc::InspectModel& request);

// Writes it in another form, with LoadProgress on the way.
api::ipc::Converted Convert(const HostState& state, Link& link, const api::ipc::ConvertModel& request);

}  // namespace quire::runner::engine
