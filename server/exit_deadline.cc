#include "server/exit_deadline.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <stop_token>
#include <system_error>

#include "api/base/mutex.h"
#include "server/journal.h"

namespace quire::server {
namespace {

void ExitAfter(std::chrono::seconds time, const std::stop_token& stop) {
  api::Mutex mutex;
  std::condition_variable_any stopped;
  api::UniqueLock lock(mutex);
  stopped.wait_for(lock, stop, time, [] { return false; });
  if (stop.stop_requested()) return;
  spdlog::warn("stopping with work that does not end seconds={}", time.count());
  ExitNow();
}

}  // namespace

void ExitDeadline::Start(std::chrono::seconds time) {
  try {
    thread_ = std::jthread([time](const std::stop_token& stop) { ExitAfter(time, stop); });
  } catch (const std::system_error& error) {
    spdlog::error("the end has no deadline: {}", error.what());
  }
}

void ExitNow() {
  DrainLog();
  std::_Exit(0);
}

void ExitAtSignals() {
  for (const int signal : {SIGTERM, SIGINT}) ::signal(signal, [](int) { ::_exit(0); });
}

}  // namespace quire::server
