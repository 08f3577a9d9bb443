#include "server/memory_reserve.h"

#include <sys/mman.h>

#include <atomic>
#include <new>

namespace quire::server {
namespace {

// The mapping, and its size; null while it is given up. What a handler of operator new can reach.
std::atomic<void*> reserve = nullptr;
std::atomic<size_t> reserve_bytes = 0;

void GiveUp() {
  void* held = reserve.exchange(nullptr);
  if (held == nullptr) throw std::bad_alloc();
  munmap(held, reserve_bytes.load());
}

void* Map(size_t bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped == MAP_FAILED ? nullptr : mapped;
}

}  // namespace

MemoryReserve::MemoryReserve(size_t bytes) : bytes_(bytes) {
  reserve_bytes = bytes_;
  reserve = Map(bytes_);
  std::set_new_handler(GiveUp);
}

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(nullptr);
  if (void* held = reserve.exchange(nullptr)) munmap(held, bytes_);
}

bool MemoryReserve::Refill() {
  if (!given_up()) return false;
  reserve = Map(bytes_);
  return true;
}

bool MemoryReserve::given_up() { return reserve.load() == nullptr; }

}  // namespace quire::server
