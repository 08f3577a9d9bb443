#include "server/notify.h"

#include <systemd/sd-daemon.h>

#include <cstdint>

namespace quire::server {

void NotifyReady(const std::string& status) { ::sd_notify(0, ("READY=1\nSTATUS=" + status).c_str()); }

void NotifyStopping() { ::sd_notify(0, "STOPPING=1\nSTATUS=Finishing running requests"); }

void NotifyAlive() { ::sd_notify(0, "WATCHDOG=1"); }

std::optional<std::chrono::microseconds> WatchdogInterval() {
  uint64_t microseconds = 0;
  if (::sd_watchdog_enabled(0, &microseconds) <= 0) return std::nullopt;
  return std::chrono::microseconds(microseconds / 2);
}

std::vector<int> InheritedSockets() {
  std::vector<int> sockets;
  const int count = ::sd_listen_fds(/*unset_environment=*/1);
  for (int i = 0; i < count; ++i) sockets.push_back(SD_LISTEN_FDS_START + i);
  return sockets;
}

}  // namespace quire::server
