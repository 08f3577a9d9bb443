// The tables of `quire list` and `quire ps`, from the daemon's JSON.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "api/base/error.h"

namespace quire::cli {

using Seconds = std::chrono::sys_seconds;  // "forever" lies beyond what nanoseconds reach

// From the body of GET /api/tags; only names that start with `prefix`.
api::Result<std::string> ListTable(std::string_view tags_json, std::string_view prefix, Seconds now);

// From the body of GET /api/ps.
api::Result<std::string> PsTable(std::string_view ps_json, Seconds now);

}  // namespace quire::cli
