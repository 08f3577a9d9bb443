#include "server/memory_release.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>

#include "server/routes/resident_memory.h"

namespace quire::server {
namespace {

constexpr int64_t kWorthwhileBytes = int64_t{16} << 20;
constexpr int kLargeBlockBytes = 1 << 20;

// Resident memory that no allocation uses, code and stacks included.
int64_t UnusedBytes() {
  const struct mallinfo2 heap = ::mallinfo2();
  return ResidentBytes(::getpid()) - static_cast<int64_t>(heap.uordblks + heap.hblkhd);
}

}  // namespace

// Set, the limit no longer grows with what is freed.
MemoryRelease::MemoryRelease() { ::mallopt(M_MMAP_THRESHOLD, kLargeBlockBytes); }

void MemoryRelease::ReleaseIfWorthwhile() {
  const int64_t unused = UnusedBytes();
  if (unused < kept_bytes_ + kWorthwhileBytes) {
    kept_bytes_ = std::min(kept_bytes_, unused);
    return;
  }
  ::malloc_trim(0);
  kept_bytes_ = UnusedBytes();
}

}  // namespace quire::server
