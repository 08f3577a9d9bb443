// How much memory there is for this program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace quire::api {

struct MemoryLimit {
  int64_t bytes = 0;  // 0 = nothing says so
  std::string from;   // "the machine", or the file of the control group that says so
};

// The machine's memory, or what the tightest control group (memory.max, memory.high; of version 1
// memory.limit_in_bytes) allows if that is less. Memory in use is not considered. `root`: the parent of /proc
// and /sys.
MemoryLimit FindMemoryLimit(const std::filesystem::path& root = "/");

// Memory that the machine can give to programs now without swapping; 0 = unknown.
int64_t FindAvailableMemory(const std::filesystem::path& root = "/");

}  // namespace quire::api
