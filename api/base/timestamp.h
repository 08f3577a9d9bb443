// RFC 3339 timestamps.
#pragma once

#include <chrono>
#include <string>

namespace quire::api {

// UTC with microseconds: "2026-08-01T12:00:00.000001Z".
std::string FormatTimestamp(std::chrono::system_clock::time_point time);

}  // namespace quire::api
