#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace quire::runner::engine {

// Cores that the threads of a step may use at once: the physical cores behind the processors this process may
// run on, one thread each, cut down to the CPU quota of its control groups (rounded up); at least one.
int32_t UsableCores();

// The threads of a step, where `asked` were asked for; 0: those that fit this machine.
inline int ThreadsOf(int asked) { return asked > 0 ? asked : UsableCores(); }

// The same for these processors, on the machine whose files are below `root`.
int32_t UsableCores(std::span<const int> processors, const std::filesystem::path& root);

// The physical cores behind these processors, each with its processors, on the machine whose files are below
// `root`.
std::vector<std::vector<int>> CoresOf(std::span<const int> processors, const std::filesystem::path& root);

// The numbers of the processors this process may run on (cpuset, taskset).
std::vector<int> AllowedProcessors();

}  // namespace quire::runner::engine
