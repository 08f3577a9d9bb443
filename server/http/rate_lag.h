// How far a peer is behind a minimum rate: to wait for it adds to the lag, its bytes take from it. The lag is
// never negative: bytes that came fast do not pay for a silence later.
#pragma once

#include <chrono>
#include <cstdint>

namespace quire::server {

class RateLag {
 public:
  explicit RateLag(uint64_t bytes_per_second_min) : bytes_per_second_min_(bytes_per_second_min) {}

  void AddWait(std::chrono::nanoseconds waited) { value_ += waited; }
  void AddBytes(uint64_t bytes) {
    if (bytes == 0) return;
    const std::chrono::duration<double> paid(static_cast<double>(bytes) /
                                             static_cast<double>(bytes_per_second_min_));
    if (paid >= value_) {
      value_ = {};
    } else {
      value_ -= std::chrono::duration_cast<std::chrono::nanoseconds>(paid);
    }
  }
  std::chrono::nanoseconds value() const { return value_; }

 private:
  uint64_t bytes_per_second_min_;
  std::chrono::nanoseconds value_{};
};

}  // namespace quire::server
