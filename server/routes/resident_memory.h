// The memory that a process has now.
#pragma once

#include <cstdint>

namespace quire::server {

// Resident bytes: anonymous memory and mapped files. 0: there is no such process. Reads /proc, which never
// blocks.
int64_t ResidentBytes(int pid);

}  // namespace quire::server
