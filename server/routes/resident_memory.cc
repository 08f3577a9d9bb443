#include "server/routes/resident_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

namespace quire::server {

int64_t ResidentBytes(int pid) {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  int64_t size = 0;
  int64_t resident = 0;
  file >> size >> resident;
  return file ? resident * ::sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace quire::server
