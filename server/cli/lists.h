// The tables of `quire list` and `quire ps`, from the daemon's JSON.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "api/error.h"

namespace quire::cli {

using Clock = std::chrono::system_clock;

// From the body of GET /api/tags; only names that start with `prefix`.
api::Result<std::string> ListTable(std::string_view tags_json, std::string_view prefix,
                                   Clock::time_point now);

// From the body of GET /api/ps.
api::Result<std::string> PsTable(std::string_view ps_json, Clock::time_point now);

}  // namespace quire::cli
