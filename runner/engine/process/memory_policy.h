// Where a runner's memory and threads lie on a machine with several NUMA nodes.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/kernels/numa_plan.h"

namespace quire::runner::engine {

// With every mode but kOff the threads of a step are pinned, where this process may compute on several nodes.
enum class NumaMode : uint8_t {
  kAuto,        // kInterleave where this process may compute on several nodes, else kOff
  kInterleave,  // pages from the nodes that this process may compute on, in turn
  kReplicate,   // weights once on each of these nodes; other pages as with kOff
  kOff,         // the kernel's default: a page from the node of the thread that writes it first
};

// As --numa has them.
inline constexpr std::array<std::pair<std::string_view, NumaMode>, 4> kNumaModes = {
    {{"auto", NumaMode::kAuto},
     {"interleave", NumaMode::kInterleave},
     {"replicate", NumaMode::kReplicate},
     {"off", NumaMode::kOff}}};

// Applies to what this thread and the threads it starts allocate from now on, weights and caches alike, to
// pages of files that they read first, and to pools that start from now on. Call it before DropPrivileges(),
// whose filter refuses such calls. Returns what the kernel or the service manager refused and why, or
// nothing: then memory is as with kOff, and where threads cannot be pinned, weights are not replicated.
[[nodiscard]] std::string SetMemoryPolicy(NumaMode mode);

// The nodes of these processors with their cores, on the machine whose files are below `root`; as NodesOf.
NumaPlan PlanOf(std::span<const int> processors, const std::filesystem::path& root);

// The nodes of these processors, ascending, on the machine whose files are below `root`; none if the kernel
// does not say.
std::vector<int> NodesOf(std::span<const int> processors, const std::filesystem::path& root);

// Pages from these nodes in turn. REQUIRES: nodes are numbers of existing nodes, at least one. Zero or an
// errno.
[[nodiscard]] int InterleaveMemory(std::span<const int> nodes);

}  // namespace quire::runner::engine
