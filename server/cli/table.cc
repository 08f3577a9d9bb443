#include "server/cli/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace quire::cli {

std::string FormatTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}", row[i], widths[i] + 4);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string FormatSize(int64_t bytes) {
  static constexpr std::array<std::string_view, 5> kUnits = {"B", "KB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return unit > 0 && value < 10 ? fmt::format("{:.1f} {}", value, kUnits[unit])
                                : fmt::format("{:.0f} {}", value, kUnits[unit]);
}

std::string FormatAge(std::chrono::seconds delta) {
  struct Unit {
    int64_t seconds;
    std::string_view name;
  };
  static constexpr std::array<Unit, 7> kUnits = {{{31536000, "year"},
                                                  {2592000, "month"},
                                                  {604800, "week"},
                                                  {86400, "day"},
                                                  {3600, "hour"},
                                                  {60, "minute"},
                                                  {1, "second"}}};
  const int64_t size = std::abs(delta.count());
  const std::string_view side = delta.count() >= 0 ? "ago" : "from now";
  for (const auto& unit : kUnits) {
    const int64_t count = size / unit.seconds;
    if (count > 0) return fmt::format("{} {}{} {}", count, unit.name, count == 1 ? "" : "s", side);
  }
  return fmt::format("Less than a second {}", side);
}

}  // namespace quire::cli
