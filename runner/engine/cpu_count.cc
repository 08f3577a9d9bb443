#include "runner/engine/cpu_count.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace quire::runner::engine {
namespace {

// cgroup v2: the tightest cpu.max ("quota period" in microseconds, or "max period") from our group up to the
// root.
double QuotaCores() {
  double cores = std::numeric_limits<double>::infinity();
  std::ifstream self("/proc/self/cgroup");
  for (std::string line; std::getline(self, line);) {
    if (!line.starts_with("0::")) continue;
    std::filesystem::path group = line.substr(3);
    while (true) {
      std::ifstream file("/sys/fs/cgroup" + (group / "cpu.max").string());
      double quota = 0;
      double period = 0;
      if (file >> quota >> period && period > 0) cores = std::min(cores, quota / period);
      if (!group.has_relative_path()) break;
      group = group.parent_path();
    }
  }
  return cores;
}

}  // namespace

int32_t UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return static_cast<int32_t>(
      std::clamp(std::ceil(QuotaCores()), 1.0, static_cast<double>(std::max(allowed, 1))));
}

}  // namespace quire::runner::engine
