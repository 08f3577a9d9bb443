#include "runner/engine/process/machine_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "api/base/file_descriptor.h"
#include "api/base/memory_limit.h"

namespace quire::runner::engine {
namespace {

struct MachineMemory {
  int64_t limit;
  int64_t available;
  api::FileDescriptor own;
};

std::optional<MachineMemory> machine_memory;

api::FileDescriptor OpenOwn() {
  return api::FileDescriptor(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
}

// The second number, pages in memory. 0 = it cannot be read.
int64_t ResidentPages(int statm) {
  std::array<char, 128> text{};
  const ssize_t bytes = ::pread(statm, text.data(), text.size(), 0);
  if (bytes <= 0) return 0;
  const std::string_view numbers(text.data(), static_cast<size_t>(bytes));
  const size_t second = numbers.find(' ');
  int64_t pages = 0;
  if (second != std::string_view::npos) {
    std::from_chars(numbers.data() + second + 1, numbers.data() + numbers.size(), pages);
  }
  return pages;
}

}  // namespace

void ReadMachineMemory() {
  if (machine_memory) return;
  machine_memory.emplace(api::FindMemoryLimit().bytes, api::FindAvailableMemory(), OpenOwn());
}

void CloseMachineMemory() {
  if (machine_memory) machine_memory->own.Reset();
}

int64_t ResidentBytes() {
  if (machine_memory) return ResidentPages(machine_memory->own.get()) * ::sysconf(_SC_PAGESIZE);
  return ResidentPages(OpenOwn().get()) * ::sysconf(_SC_PAGESIZE);
}

int64_t MemoryLimitBytes() { return machine_memory ? machine_memory->limit : api::FindMemoryLimit().bytes; }

int64_t AvailableMemoryBytes() {
  return machine_memory ? machine_memory->available : api::FindAvailableMemory();
}

}  // namespace quire::runner::engine
