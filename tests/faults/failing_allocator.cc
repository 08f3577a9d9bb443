// operator new of the whole program: fails where Faults() says so, as if there were no memory.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "tests/faults/fault_control.h"

namespace {

constinit std::atomic<int64_t> live = 0;

void* Allocate(size_t bytes, size_t alignment) {
  if (quire::faults::CountDownAllocation()) return nullptr;
  const size_t size = bytes == 0 ? 1 : bytes;
  while (true) {
    void* const memory = alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__
                             ? std::malloc(size)
                             : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (memory != nullptr) {
      ++live;
      return memory;
    }
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) return nullptr;
    handler();
  }
}

void* AllocateOrThrow(size_t bytes, size_t alignment = 1) {
  void* const memory = Allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void Free(void* memory) {
  if (memory != nullptr) --live;
  std::free(memory);
}

}  // namespace

namespace quire::faults {
int64_t LiveAllocations();
int64_t LiveAllocations() { return live; }
}  // namespace quire::faults

void* operator new(size_t bytes) { return AllocateOrThrow(bytes); }
void* operator new[](size_t bytes) { return AllocateOrThrow(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes, 1); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes, 1); }
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { Free(memory); }
