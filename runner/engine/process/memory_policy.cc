#include "runner/engine/process/memory_policy.h"

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "api/base/parse_integer.h"
#include "runner/engine/process/cpu_count.h"

namespace quire::runner::engine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNodesMax = 1024;  // of any kernel today
constexpr size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;

}  // namespace

std::vector<int> NodesOf(std::span<const int> processors, const fs::path& root) {
  constexpr std::string_view kPrefix = "node";
  std::set<int> nodes;
  for (const int processor : processors) {
    std::error_code error;
    // The processor's folder has a link to its node's: "node0".
    fs::directory_iterator entry(root / fmt::format("sys/devices/system/cpu/cpu{}", processor), error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (!name.starts_with(kPrefix)) continue;
      const auto node = api::ParseInteger<int>(std::string_view(name).substr(kPrefix.size()));
      if (node && *node >= 0) nodes.insert(*node);
    }
  }
  return {nodes.begin(), nodes.end()};
}

int InterleaveMemory(std::span<const int> nodes) {
  std::array<unsigned long, kNodesMax / kWordBits> mask{};
  for (const int node : nodes) {
    const auto bit = static_cast<size_t>(node);
    if (bit >= kNodesMax) return EINVAL;
    mask[bit / kWordBits] |= 1UL << (bit % kWordBits);
  }
  // The kernel counts one bit less than it is given.
  return ::syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, mask.data(), kNodesMax + 1) == 0 ? 0 : errno;
}

namespace {

// Pools pin their threads from now on, if this thread may be pinned to where it runs already. Returns why
// not.
std::string SetPlan(NumaPlan plan, NumaMode mode, std::span<const int> processors) {
  if (plan.spreads() && !PinThisThread(processors)) {
    std::string refused = "threads are not pinned to NUMA nodes";
    if (mode == NumaMode::kReplicate) refused += ", and weights are not replicated";
    return refused + ": " + std::generic_category().message(errno);
  }
  plan.replicates_weights = mode == NumaMode::kReplicate;
  SetNumaPlan(std::move(plan));
  return {};
}

}  // namespace

NumaPlan PlanOf(std::span<const int> processors, const fs::path& root) {
  NumaPlan plan;
  const std::vector<int> nodes = NodesOf(processors, root);
  if (nodes.empty()) return plan;
  plan.nodes.resize(nodes.size());
  for (const std::vector<int>& core : CoresOf(processors, root)) {
    const std::vector<int> of_core = NodesOf(core, root);
    if (of_core.empty()) continue;
    const auto found = std::ranges::lower_bound(nodes, of_core.front());
    plan.nodes[static_cast<size_t>(found - nodes.begin())].cores.push_back(core);
  }
  return plan;
}

std::string SetMemoryPolicy(NumaMode mode) {
  if (mode == NumaMode::kOff) return {};
  const std::vector<int> processors = AllowedProcessors();
  std::string refused = SetPlan(PlanOf(processors, "/"), mode, processors);
  const std::vector<int> nodes = NodesOf(processors, "/");
  if (nodes.empty() || mode == NumaMode::kReplicate || (mode == NumaMode::kAuto && nodes.size() < 2))
    return refused;
  if (const int error = InterleaveMemory(nodes); error != 0) {
    if (!refused.empty()) refused += "; ";
    refused += "memory is not interleaved: " + std::generic_category().message(error);
  }
  return refused;
}

}  // namespace quire::runner::engine
