// The CPU time that preparing one request may take.
//
// A client chooses what its templates, texts, schemas and regular expressions cost. Every loop whose length a
// client chooses calls CountWork(). The thread that prepares a request has a WorkBudget; when it is spent, or
// the request is canceled, CountWork() throws WorkStopped, which only the owner of the budget catches. Code
// in between keeps no state that an exception leaves broken. Without a budget CountWork() never throws:
// loading a model, tests.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "runner/work/work_memory.h"

namespace quire::runner {

struct WorkStopped {
  // kFormatMemory: the request has to wait for others that use formats (ConstraintCache).
  enum class Reason : uint8_t { kCpuTime, kCanceled, kUnits, kFormatMemory };
  Reason reason = Reason::kCpuTime;
};

// One at a time per thread; made and destroyed on that thread.
class WorkBudget {
 public:
  static std::chrono::nanoseconds CpuTime();  // of this thread

  // `canceled` may be set by any thread and outlives the budget, as `checks` does. That rises with each look
  // at the clock, also of exempt work: where it stands still, the thread is stuck in something that counts no
  // work.
  WorkBudget(std::chrono::nanoseconds cpu_time, const std::atomic<bool>& canceled,
             std::atomic<uint64_t>* checks = nullptr);
  ~WorkBudget();
  WorkBudget(const WorkBudget&) = delete;
  WorkBudget& operator=(const WorkBudget&) = delete;

  // Work that no client chose, such as an index that is built once per model: neither its CPU time nor its
  // units nor its memory are counted.
  class Exempt {
   public:
    Exempt();
    ~Exempt();
    Exempt(const Exempt&) = delete;
    Exempt& operator=(const Exempt&) = delete;

   private:
    const WorkMemory::Exempt memory_;
    WorkBudget* const budget_;
    std::chrono::nanoseconds begin_{};
    int64_t units_left_ = 0;
  };

 private:
  friend void CheckWork();
  friend bool WorkMustStop();
  static std::optional<WorkStopped::Reason> StopReason();

  std::chrono::nanoseconds deadline_;  // in CPU time of the thread
  const std::atomic<bool>& canceled_;
};

// A bound on the units that the work within this scope may count, the same on every machine: what it refuses
// does not depend on speed or load. Works with and without a budget; the innermost holds.
class WorkLimit {
 public:
  explicit WorkLimit(uint64_t units);
  ~WorkLimit();
  WorkLimit(const WorkLimit&) = delete;
  WorkLimit& operator=(const WorkLimit&) = delete;

 private:
  const int64_t outer_left_;
};

// Looks at the clock, the cancellation and the limit. Throws WorkStopped.
void CheckWork();
// For what a library calls, through which nothing may throw: whether the next CheckWork() throws.
bool WorkMustStop();

inline constexpr int64_t kUnitsPerCheck = 4096;
inline constinit thread_local int64_t units_to_check = kUnitsPerCheck;

// `units`: of some 10 ns each. Throws WorkStopped.
inline void CountWork(uint64_t units = 1) {
  units_to_check -= static_cast<int64_t>(units);
  if (units_to_check < 0) [[unlikely]]
    CheckWork();
}

}  // namespace quire::runner
