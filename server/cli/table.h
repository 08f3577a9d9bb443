// Plain-text tables and human forms of sizes and times, as `quire list` and `quire ps` print them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace quire::cli {

// Columns left-aligned, four spaces apart, no trailing spaces; the first row is the header.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

// Decimal units, two significant places below ten: "5.8 MB", "1.9 GB", "312 B".
std::string FormatSize(int64_t bytes);

// "3 days ago", "4 minutes from now", "Less than a second"; `delta` > 0 is the past.
std::string FormatAge(std::chrono::seconds delta);

}  // namespace quire::cli
