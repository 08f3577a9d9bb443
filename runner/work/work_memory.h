// The memory that preparing one request may have at a time.
//
// A program that contains counted_memory.cc counts the bytes that operator new and delete allocate and free
// on a thread. An allocation beyond the bound of the thread fails with std::bad_alloc, as where there is no
// memory, and exceeded() says why. In any other program nothing is counted, and nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::runner {

// Made and destroyed on one thread; an inner one adds a bound to those around it. What was allocated before
// may be freed within it, which makes room. Memory that another thread frees stays counted.
class WorkMemory {
 public:
  explicit WorkMemory(size_t bytes_max);
  ~WorkMemory();
  WorkMemory(const WorkMemory&) = delete;
  WorkMemory& operator=(const WorkMemory&) = delete;

  // An allocation failed for this bound.
  bool exceeded() const { return exceeded_; }
  // The most bytes at one time so far.
  size_t peak() const { return static_cast<size_t>(peak_); }

  // What no client chose, as WorkBudget::Exempt: neither allocating nor freeing counts.
  class Exempt {
   public:
    Exempt();
    ~Exempt();
    Exempt(const Exempt&) = delete;
    Exempt& operator=(const Exempt&) = delete;

   private:
    WorkMemory* const scope_;
  };

 private:
  friend bool MayAllocate(size_t bytes);
  friend void CountAllocated(size_t bytes);
  friend void CountFreed(size_t bytes);

  WorkMemory* const outer_;
  const int64_t bytes_max_;
  int64_t bytes_ = 0;
  int64_t peak_ = 0;
  bool exceeded_ = false;
};

inline constinit thread_local WorkMemory* work_memory = nullptr;  // the innermost of this thread

// For counted_memory.cc. `bytes` of one block of memory.
bool MayAllocate(size_t bytes);
void CountAllocated(size_t bytes);
void CountFreed(size_t bytes);

}  // namespace quire::runner
