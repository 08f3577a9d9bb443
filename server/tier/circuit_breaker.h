// Whether something that failed is tried: not while it is open, then once in a while. Times are arguments.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace quire::server {

class CircuitBreaker {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int kFailures = 3;  // in a row, until it opens

  explicit CircuitBreaker(std::chrono::nanoseconds pause = std::chrono::seconds(5)) : pause_(pause) {}

  // True: try, and say how it went.
  bool MayTry(Time now) {
    if (failures_ < kFailures || now >= next_) {
      next_ = now + std::chrono::duration_cast<Time::duration>(pause_);
      return true;
    }
    return false;
  }
  // True: it opened.
  bool Failed(Time now) {
    next_ = now + std::chrono::duration_cast<Time::duration>(pause_);
    return ++failures_ == kFailures;
  }
  // It may be used again; the next failure opens it.
  void AllowOne() { failures_ = std::min(failures_, kFailures - 1); }
  // True: it was open.
  bool Succeeded() { return std::exchange(failures_, 0) >= kFailures; }
  bool open() const { return failures_ >= kFailures; }

 private:
  std::chrono::nanoseconds pause_;
  int failures_ = 0;
  Time next_{};
};

}  // namespace quire::server
