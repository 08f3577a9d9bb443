// operator new and delete of a program: what a thread allocates within a WorkMemory is counted there.
//
// They call what would be in their place, so that a sanitizer and a library that makes allocations fail still
// work; where the standard library is part of the program, malloc().

#include <dlfcn.h>
#include <malloc.h>

#include <cstdlib>
#include <new>

#include "runner/work/work_memory.h"

namespace quire::runner {
namespace {

constexpr size_t kHeaderBytes = sizeof(size_t);  // of a block

struct Allocator {
  void* (*allocate)(size_t);
  void* (*allocate_aligned)(size_t, std::align_val_t);
  void (*free)(void*);
  void (*free_aligned)(void*, std::align_val_t);
};

// `allocate` until it succeeds or no handler helps.
template <class Allocate>
void* AllocateOrThrow(Allocate allocate) {
  while (true) {
    if (void* const memory = allocate()) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

void* AllocatePlain(size_t bytes) {
  return AllocateOrThrow([=] { return std::malloc(bytes == 0 ? 1 : bytes); });
}

void* AllocateAligned(size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<size_t>(alignment);
  return AllocateOrThrow([=] { return std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit); });
}

template <class Function>
Function* Next(const char* name, Function* otherwise) {
  void* const found = ::dlsym(RTLD_NEXT, name);
  return found == nullptr ? otherwise : reinterpret_cast<Function*>(found);
}

// The names are those of the Itanium C++ ABI, with 64-bit sizes.
const Allocator& Underlying() {
  static const Allocator allocator = [] {
    const auto free = [](void* memory) { std::free(memory); };
    const auto free_aligned = [](void* memory, std::align_val_t) { std::free(memory); };
    return Allocator{Next<void*(size_t)>("_Znwm", AllocatePlain),
                     Next<void*(size_t, std::align_val_t)>("_ZnwmSt11align_val_t", AllocateAligned),
                     Next<void(void*)>("_ZdlPv", free),
                     Next<void(void*, std::align_val_t)>("_ZdlPvSt11align_val_t", free_aligned)};
  }();
  return allocator;
}

size_t BytesOf(void* memory) { return ::malloc_usable_size(memory) + kHeaderBytes; }

template <class Take>
void* Counted(size_t bytes, Take take) {
  if (work_memory == nullptr) return take();
  if (!MayAllocate(bytes)) throw std::bad_alloc();
  void* const memory = take();
  CountAllocated(BytesOf(memory));
  return memory;
}

void* Allocate(size_t bytes) {
  return Counted(bytes, [=] { return Underlying().allocate(bytes); });
}
void* Allocate(size_t bytes, std::align_val_t alignment) {
  return Counted(bytes, [=] { return Underlying().allocate_aligned(bytes, alignment); });
}
template <class... Arguments>
void* AllocateOrNull(Arguments... arguments) noexcept {
  try {
    return Allocate(arguments...);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void Free(void* memory) {
  if (memory != nullptr && work_memory != nullptr) CountFreed(BytesOf(memory));
  Underlying().free(memory);
}
void Free(void* memory, std::align_val_t alignment) {
  if (memory != nullptr && work_memory != nullptr) CountFreed(BytesOf(memory));
  Underlying().free_aligned(memory, alignment);
}

}  // namespace
}  // namespace quire::runner

using quire::runner::Allocate;
using quire::runner::AllocateOrNull;
using quire::runner::Free;

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) { return Allocate(bytes, alignment); }
void* operator new[](size_t bytes, std::align_val_t alignment) { return Allocate(bytes, alignment); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return AllocateOrNull(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return AllocateOrNull(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return AllocateOrNull(bytes, alignment);
}
void* operator new[](size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return AllocateOrNull(bytes, alignment);
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { Free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t alignment) noexcept { Free(memory, alignment); }
void operator delete[](void* memory, std::align_val_t alignment) noexcept { Free(memory, alignment); }
void operator delete(void* memory, size_t, std::align_val_t alignment) noexcept { Free(memory, alignment); }
void operator delete[](void* memory, size_t, std::align_val_t alignment) noexcept { Free(memory, alignment); }
