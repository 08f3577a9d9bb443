// Notifications to the service manager (sd_notify). Without one every call is a no-op.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "api/base/error.h"

namespace quire::server {

void NotifyReady(const std::string& status);
void NotifyReloading();
void NotifyStopping();
void NotifyStatus(const std::string& status);
void NotifyAlive();
// Starting or stopping may take this much longer from now.
void NotifyExtendTimeout(std::chrono::microseconds time);

// How often NotifyAlive() is expected, halved for safety; nothing when there is no watchdog.
std::optional<std::chrono::microseconds> WatchdogInterval();

struct InheritedSocket {
  int fd = -1;
  std::string name;  // FileDescriptorName= of its unit
};
// Listening sockets inherited from the service manager. Once: later calls find none. kInvalidArgument:
// LISTEN_FDS or LISTEN_PID is no number, or a descriptor is not open.
api::Result<std::vector<InheritedSocket>> InheritedSockets();

}  // namespace quire::server
