#include "server/memory_reserve.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "api/base/reserved_memory.h"

namespace quire::server {
namespace {

// What a handler of operator new can reach.
struct Part {
  std::atomic<void*> held = nullptr;  // the mapping; null while it is given up

  bool GiveUp();
  void Refill();
};
constinit Part for_all;
constinit Part for_what_cannot_fail;
std::atomic<size_t> part_bytes = 0;

bool Part::GiveUp() {
  void* const given = held.exchange(nullptr);
  return given != nullptr && munmap(given, part_bytes.load()) == 0;
}

void Part::Refill() {
  if (held.load() != nullptr) return;
  void* const mapped =
      mmap(nullptr, part_bytes.load(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  held = mapped == MAP_FAILED ? nullptr : mapped;
}

void GiveUp() {
  if (for_all.GiveUp()) return;
  if (api::ReservedMemoryScope::active() && for_what_cannot_fail.GiveUp()) return;
  throw std::bad_alloc();
}

}  // namespace

MemoryReserve::MemoryReserve(size_t bytes) {
  part_bytes = bytes;
  for_what_cannot_fail.Refill();
  for_all.Refill();
  std::set_new_handler(GiveUp);
}

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(nullptr);
  for_all.GiveUp();
  for_what_cannot_fail.GiveUp();
}

bool MemoryReserve::Refill() {
  if (!given_up()) return false;
  for_what_cannot_fail.Refill();
  for_all.Refill();
  return true;
}

bool MemoryReserve::given_up() {
  return for_all.held.load() == nullptr || for_what_cannot_fail.held.load() == nullptr;
}

}  // namespace quire::server

// For tests that let allocations fail: tests/faults.
extern "C" bool quire_memory_is_reserved() { return quire::api::ReservedMemoryScope::active(); }

// Takes the place of the C library's, which knows no handler. When it fails, Asio destroys the coroutine that
// waits.
extern "C" void* aligned_alloc(size_t alignment, size_t size) noexcept {
  using namespace quire::server;
  void* memory = nullptr;
  while (posix_memalign(&memory, std::max(alignment, sizeof(void*)), size) != 0) {
    if (!for_all.GiveUp() && !for_what_cannot_fail.GiveUp()) return nullptr;
  }
  return memory;
}
