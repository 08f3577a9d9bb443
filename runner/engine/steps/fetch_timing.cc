#include "runner/engine/steps/fetch_timing.h"

#include <algorithm>

namespace quire::runner::engine {
namespace {

// The time to compute a token before that was ever measured: not less than small models take.
constexpr double kUnmeasuredTokenSeconds = 1e-3;
constexpr double kOptimism = 1.1;
// The share of the newest fetch in the rate. A tier that became slow is left alone soon: each try costs a
// request its wait.
constexpr double kFasterShare = 0.3;
constexpr double kSlowerShare = 0.8;

}  // namespace

std::chrono::nanoseconds FetchTiming::TimeToWait(int64_t tokens) const {
  if (always_) return std::chrono::minutes(2);
  const double seconds =
      static_cast<double>(tokens) * (token_seconds_ > 0 ? token_seconds_ : kUnmeasuredTokenSeconds);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

bool FetchTiming::Worthwhile(int64_t tokens, uint64_t bytes) {
  if (always_ || token_seconds_ <= 0 || bytes_per_second_ <= 0) return true;
  const double compute = static_cast<double>(tokens) * token_seconds_;
  if (static_cast<double>(bytes) / bytes_per_second_ <= compute / 2) return true;
  bytes_per_second_ *= kOptimism;
  return false;
}

void FetchTiming::AddFetch(uint64_t bytes, std::chrono::nanoseconds took) {
  if (bytes == 0) return;
  const double rate =
      static_cast<double>(bytes) / std::max(std::chrono::duration<double>(took).count(), 1e-6);
  const double share = rate < bytes_per_second_ ? kSlowerShare : kFasterShare;
  bytes_per_second_ = bytes_per_second_ <= 0 ? rate : bytes_per_second_ + share * (rate - bytes_per_second_);
}

}  // namespace quire::runner::engine
