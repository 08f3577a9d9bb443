#include "runner/engine/cpu_count.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "runner/engine/cgroup.h"

namespace quire::runner::engine {
namespace {

// The tightest cpu.max ("quota period" in microseconds, or "max period").
double QuotaCores() {
  double cores = std::numeric_limits<double>::infinity();
  for (const std::filesystem::path& group : OwnCgroups()) {
    std::ifstream file(group / "cpu.max");
    double quota = 0;
    double period = 0;
    if (file >> quota >> period && period > 0) cores = std::min(cores, quota / period);
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
