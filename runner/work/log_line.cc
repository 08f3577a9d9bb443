#include "runner/work/log_line.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace quire::runner::engine {

void LogLine(std::string_view text) {
  const std::string line = fmt::format("quire-runner: {}\n", text);
  // Not through stdio: fmt::print throws when the pipe is full.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

void LogLastLine(const char* line, size_t bytes) {
  constexpr int kWaitMilliseconds = 1000;
  if (::write(STDERR_FILENO, line, bytes) >= 0 || errno != EAGAIN) return;
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  ::poll(&room, 1, kWaitMilliseconds);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line, bytes);
}

}  // namespace quire::runner::engine
