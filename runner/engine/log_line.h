// Lines of a runner for the daemon's log.
#pragma once

#include <string_view>

namespace quire::runner::engine {

// Writes "quire-runner: TEXT" to standard error in one piece. The line is dropped if the daemon is behind with
// reading: a runner never waits for its log. Any thread.
void LogLine(std::string_view text);

}  // namespace quire::runner::engine
