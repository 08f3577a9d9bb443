// What the service manager is told and asks for. Without one all of it does nothing.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace quire::server {

void NotifyReady(const std::string& status);
void NotifyStopping();
void NotifyAlive();

// How often NotifyAlive() is expected, halved for safety; nothing when there is no watchdog.
std::optional<std::chrono::microseconds> WatchdogInterval();

// Listening sockets inherited from the service manager.
std::vector<int> InheritedSockets();

}  // namespace quire::server
