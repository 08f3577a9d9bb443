// The filters of system calls that are applied to a process.
#pragma once

#include <optional>

namespace quire::server {

// The filters of a runner that is at work: one for its setup, one for loading, one for serving
// (runner/engine/process/sandbox.h).
inline constexpr int kFiltersOfARunner = 3;

// As the kernel counts them. Nothing: there is no such process. Reads /proc, which never blocks.
std::optional<int> AppliedFilters(int pid);

}  // namespace quire::server
