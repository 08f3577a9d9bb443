// Lines of a runner for the daemon's log.
#pragma once

#include <cstddef>
#include <string_view>

namespace quire::runner::engine {

// Writes "quire-runner: TEXT" to standard error in one piece. The line is dropped if the daemon is behind
// with reading: a runner never waits for its log. Any thread.
void LogLine(std::string_view text);

// Writes the last line of this process as it is, and waits up to a second for room. Async-signal-safe.
void LogLastLine(const char* line, size_t bytes);

}  // namespace quire::runner::engine
