// What the kernel says of memory. A confined process opens no file: it has read the limits before, and keeps
// the file that says how much it has itself.
#pragma once

#include <cstdint>

namespace quire::runner::engine {

// Called once, before the process is confined: the functions below then open nothing. Without it they read
// what is so when they are called. All from one thread.
void ReadMachineMemory();
// The process needs none of it any more: closes the file.
void CloseMachineMemory();

// Bytes of memory that this process has now.
int64_t ResidentBytes();
// As api::FindMemoryLimit() and api::FindAvailableMemory() have them.
int64_t MemoryLimitBytes();
int64_t AvailableMemoryBytes();

}  // namespace quire::runner::engine
