// How fast prefixes are written: times are arguments.
#pragma once

#include <chrono>
#include <cstdint>

namespace quire::server {

class WriteRate {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit WriteRate(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // When the next piece may come, after one of this many bytes that ended now. What was not written in time
  // is not made up for: no burst follows a pause.
  Time NextAfter(uint64_t bytes, Time now) const {
    const std::chrono::duration<double> pause(static_cast<double>(bytes) / bytes_per_second_);
    return now + std::chrono::duration_cast<Time::duration>(pause);
  }

 private:
  const double bytes_per_second_;
};

}  // namespace quire::server
