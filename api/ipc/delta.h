// The frame that a runner sends for every token, without the detour over a JSON value.
#pragma once

#include <string>

#include "api/ipc/messages.h"

namespace quire::api::ipc {

// Appends the frame of a RequestEvent with a TextDelta that carries text and thinking only; it decodes to
// what Encode()'s frame does. False, and nothing appended, for any other message. Allocates nothing where
// `frames` has room.
bool AppendDelta(const ToDaemon& message, std::string& frames);

}  // namespace quire::api::ipc
