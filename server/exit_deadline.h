// Bounds the end of the process: what has no bound of its own then, such as a call to a disk that does not
// answer, keeps it no longer than this. The store survives that as it survives a crash.
#pragma once

#include <chrono>
#include <thread>

namespace quire::server {

class ExitDeadline {
 public:
  ExitDeadline() = default;
  ExitDeadline(const ExitDeadline&) = delete;
  ExitDeadline& operator=(const ExitDeadline&) = delete;
  // The process goes on: the deadline counts no more.
  ~ExitDeadline() = default;

  // Exits with 0 after `time`. Once. Where there is no thread for it, nothing happens.
  void Start(std::chrono::seconds time);

 private:
  std::jthread thread_;
};

// Ends the process with 0, after the lines of the log.
[[noreturn]] void ExitNow();

// From now on SIGTERM and SIGINT end the process at once, with 0.
void ExitAtSignals();

}  // namespace quire::server
