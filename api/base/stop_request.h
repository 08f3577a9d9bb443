// Whether the work of the current thread should end early, because nobody waits for its result any more. What
// may take long looks at it: hashes and copies of large files, waits for a lock.
#pragma once

#include <atomic>

namespace quire::api {

// Work of the current thread within it ends early once `requested` is set, by any thread. Of nested ones the
// inner counts.
class StopScope {
 public:
  // `requested` outlives it.
  explicit StopScope(const std::atomic<bool>& requested) : outer_(current_) { current_ = &requested; }
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;
  ~StopScope() { current_ = outer_; }

  static bool requested() { return current_ != nullptr && *current_; }

 private:
  static inline thread_local const std::atomic<bool>* current_ = nullptr;
  const std::atomic<bool>* const outer_;
};

}  // namespace quire::api
