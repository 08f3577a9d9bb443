#include "runner/engine/process/cpu_count.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "api/base/cgroup.h"

namespace quire::runner::engine {
namespace {

namespace fs = std::filesystem;

// The tightest quota of this process's control groups, as microseconds of each period of some.
double QuotaCores(const fs::path& root) {
  double cores = std::numeric_limits<double>::infinity(), quota = 0, period = 0;
  for (const fs::path& group : api::OwnCgroups(root)) {  // "quota period", or "max period"
    std::ifstream file(group / "cpu.max");
    if (file >> quota >> period && period > 0) cores = std::min(cores, quota / period);
  }
  for (const fs::path& group : api::OwnVersionOneCgroups(root, "cpu")) {  // -1: no quota
    std::ifstream quota_file(group / "cpu.cfs_quota_us"), period_file(group / "cpu.cfs_period_us");
    if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) {
      cores = std::min(cores, quota / period);
    }
  }
  return cores;
}

// The identity of a processor's physical core: the list of its hardware threads, the same in all of them.
// Without information from the kernel, each processor counts as a core.
std::string CoreOf(int processor, const fs::path& root) {
  const fs::path topology = root / fmt::format("sys/devices/system/cpu/cpu{}/topology", processor);
  for (const char* name : {"core_cpus_list", "thread_siblings_list"}) {  // the latter before Linux 5.3
    std::ifstream file(topology / name);
    if (std::string siblings; std::getline(file, siblings) && !siblings.empty()) return siblings;
  }
  return fmt::format("processor {}", processor);
}

}  // namespace

std::vector<int> AllowedProcessors() {
  constexpr int kProcessorsMost = 1 << 20;
  for (int size = CPU_SETSIZE; size <= kProcessorsMost; size *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(static_cast<size_t>(size)),
                                                               [](cpu_set_t* it) { CPU_FREE(it); });
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(size));
    if (sched_getaffinity(0, bytes, set.get()) == 0) {
      std::vector<int> processors;
      for (int i = 0; i < size; ++i) {
        if (CPU_ISSET_S(static_cast<size_t>(i), bytes, set.get())) processors.push_back(i);
      }
      return processors;
    }
    if (errno != EINVAL) break;  // EINVAL: the kernel's sets are larger
  }
  return {};
}

std::vector<std::vector<int>> CoresOf(std::span<const int> processors, const fs::path& root) {
  std::map<std::string, size_t> known;
  std::vector<std::vector<int>> cores;
  for (const int processor : processors) {
    const auto [core, is_new] = known.try_emplace(CoreOf(processor, root), cores.size());
    if (is_new) cores.emplace_back();
    cores[core->second].push_back(processor);
  }
  return cores;
}

int32_t UsableCores(std::span<const int> processors, const fs::path& root) {
  const auto max_cores = static_cast<double>(std::max<size_t>(CoresOf(processors, root).size(), 1));
  return static_cast<int32_t>(std::clamp(std::ceil(QuotaCores(root)), 1.0, max_cores));
}

int32_t UsableCores() { return UsableCores(AllowedProcessors(), "/"); }

}  // namespace quire::runner::engine
