#include "server/notify.h"

#include <fmt/format.h>
#include <systemd/sd-daemon.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace quire::server {

void NotifyReady(const std::string& status) { ::sd_notify(0, ("READY=1\nSTATUS=" + status).c_str()); }

void NotifyReloading() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  ::sd_notify(0, fmt::format("RELOADING=1\nMONOTONIC_USEC={}\nSTATUS=Reloading", microseconds).c_str());
}

void NotifyStopping() { ::sd_notify(0, "STOPPING=1\nSTATUS=Draining requests"); }

void NotifyStatus(const std::string& status) { ::sd_notify(0, ("STATUS=" + status).c_str()); }

void NotifyAlive() { ::sd_notify(0, "WATCHDOG=1"); }

void NotifyExtendTimeout(std::chrono::microseconds time) {
  ::sd_notify(0, fmt::format("EXTEND_TIMEOUT_USEC={}", time.count()).c_str());
}

std::optional<std::chrono::microseconds> WatchdogInterval() {
  uint64_t microseconds = 0;
  if (::sd_watchdog_enabled(0, &microseconds) <= 0) return std::nullopt;
  return std::chrono::microseconds(microseconds / 2);
}

api::Result<std::vector<InheritedSocket>> InheritedSockets() {
  std::vector<InheritedSocket> sockets;
  char** names = nullptr;
  const int count = ::sd_listen_fds_with_names(/*unset_environment=*/1, &names);
  if (count < 0) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("the sockets that LISTEN_FDS promises: {}", std::strerror(-count)));
  }
  sockets.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    sockets.push_back({SD_LISTEN_FDS_START + i, names != nullptr ? names[i] : ""});
  }
  for (char** name = names; name != nullptr && *name != nullptr; ++name) std::free(*name);
  std::free(names);
  return sockets;
}

}  // namespace quire::server
