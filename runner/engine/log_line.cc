#include "runner/engine/log_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string>

namespace quire::runner::engine {

void LogLine(std::string_view text) {
  const std::string line = fmt::format("quire-runner: {}\n", text);
  // Not through stdio: fmt::print throws when the pipe is full.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace quire::runner::engine
