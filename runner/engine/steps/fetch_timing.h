// Whether a prefix below the snapshot store is worth fetching, and how long a request waits for it: by
// measured rates. Times are arguments; there is no clock here.
//
// Invariants
// - Nothing is fetched that is predicted to take more than half as long as computing it. Before both rates
//   were measured, a fetch is tried.
// - No request waits longer than computing its tokens is predicted to take.
#pragma once

#include <chrono>
#include <cstdint>

namespace quire::runner::engine {

class FetchTiming {
 public:
  // `always`, for tests: fetch whatever there is, and wait for it.
  explicit FetchTiming(bool always = false) : always_(always) {}

  // The time to compute a prompt token; 0: not measured.
  void SetTokenSeconds(double seconds) { token_seconds_ = seconds; }
  // What a request of this many tokens to compute waits at most.
  std::chrono::nanoseconds TimeToWait(int64_t tokens) const;
  // False: computing the tokens is faster. Then the tier is predicted to be a little faster next time, so
  // that a slow moment does not switch it off forever.
  bool Worthwhile(int64_t tokens, uint64_t bytes);
  // A fetch brought this many bytes, whole or not.
  void AddFetch(uint64_t bytes, std::chrono::nanoseconds took);

 private:
  const bool always_;
  double token_seconds_ = 0;
  double bytes_per_second_ = 0;  // of the latest fetches; 0: not measured
};

}  // namespace quire::runner::engine
