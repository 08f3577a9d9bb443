#pragma once

#include <cstdint>

namespace quire::runner::engine {

// Cores this process may use: its affinity mask, cut down to the cgroup's CPU quota (rounded up), at least
// one.
int32_t UsableCores();

}  // namespace quire::runner::engine
