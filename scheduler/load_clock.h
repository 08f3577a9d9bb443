// How far a runner's load is, and how long it may take: the time that it waits for others to make room is not
// the load's.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "api/ipc/messages.h"
#include "scheduler/plan.h"

namespace quire::scheduler {

// Belongs to one runner. I/O thread only. Pure: times are given.
class LoadClock {
 public:
  // `timeout` <= 0: it may take any time.
  explicit LoadClock(std::chrono::nanoseconds timeout) : timeout_(timeout) {}

  void Start(Time now) { start_ = now; }
  Time Deadline() const {
    if (awaits_memory_ || timeout_ <= timeout_.zero() || timeout_ > Time::max() - start_ - waited_)
      return Time::max();
    return start_ + std::chrono::duration_cast<Time::duration>(timeout_ + waited_);
  }
  // It waits for memory from now on.
  void AwaitMemory(const MemoryEstimate& estimate, Time now) {
    estimate_ = estimate;
    estimated_at_ = now;
    awaits_memory_ = true;
  }
  void GrantMemory(int64_t cache_bytes, Time now) {
    waited_ = now - estimated_at_;
    cache_granted_ = cache_bytes;
    awaits_memory_ = false;
  }
  // A load never goes back, whatever a runner says.
  void Record(api::ipc::LoadProgress progress) {
    constexpr size_t kStageBytesMax = 64;
    if (progress.fraction > progress_.fraction) progress_.fraction = std::min(progress.fraction, 1.0F);
    if (progress.stage.size() <= kStageBytesMax) progress_.stage = std::move(progress.stage);
  }
  void End(Time now) { time_ = now - start_ - waited_; }

  const MemoryEstimate& estimate() const { return estimate_; }
  const api::ipc::LoadProgress& progress() const { return progress_; }  // a fraction of 0 to 1
  std::chrono::nanoseconds time() const { return time_; }               // without the wait for memory
  int64_t cache_bytes() const { return cache_granted_; }
  // That the runner was allowed to take; 0: not yet.
  int64_t memory_bytes() const { return cache_granted_ > 0 ? estimate_.fixed_bytes + cache_granted_ : 0; }

 private:
  const std::chrono::nanoseconds timeout_;
  Time start_{};
  MemoryEstimate estimate_;
  Time estimated_at_{};
  bool awaits_memory_ = false;
  int64_t cache_granted_ = 0;
  std::chrono::nanoseconds waited_{}, time_{};
  api::ipc::LoadProgress progress_;
};

}  // namespace quire::scheduler
