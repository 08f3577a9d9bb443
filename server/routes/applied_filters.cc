#include "server/routes/applied_filters.h"

#include <fmt/format.h>

#include <fstream>
#include <string>

namespace quire::server {

std::optional<int> AppliedFilters(int pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  std::string field;
  while (file >> field) {
    if (field != "Seccomp_filters:") continue;
    int count = 0;
    if (file >> count) return count;
  }
  return std::nullopt;
}

}  // namespace quire::server
