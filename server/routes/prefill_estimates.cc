#include "server/routes/prefill_estimates.h"

#include <algorithm>

namespace quire::server {
namespace {

constexpr double kDecay = 0.9;       // per request
constexpr size_t kModelsMax = 1024;  // a name that comes again is learned again
constexpr double kTokensMin = 16;    // fewer are measured with the step's fixed cost

double SecondsOf(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

double ComputedTokens(const RequestLog& log) {
  return std::max(0, log.prompt_tokens.value_or(0) - log.cached_tokens.value_or(0));
}

}  // namespace

void PrefillEstimates::Observe(const RequestLog& log) {
  if (log.stored_model.empty() || !log.prompt_tokens || log.body_bytes == 0) return;
  const double computed = ComputedTokens(log);
  const bool measured = computed >= kTokensMin && log.prompt_compute.count() > 0;
  if (models_.size() >= kModelsMax && !models_.contains(log.stored_model)) models_.erase(models_.begin());
  Sums& sums = models_[log.stored_model];
  sums.prompt_tokens = sums.prompt_tokens * kDecay + *log.prompt_tokens;
  sums.body_bytes = sums.body_bytes * kDecay + static_cast<double>(log.body_bytes);
  sums.computed_tokens = sums.computed_tokens * kDecay + (measured ? computed : 0);
  sums.seconds = sums.seconds * kDecay + (measured ? SecondsOf(log.prompt_compute) : 0);
}

double PrefillEstimates::RemainingSeconds(const RequestLog& log, TimePoint now) const {
  if (log.stored_model.empty() || log.body_bytes == 0 || log.first_token || !log.finish.empty()) return 0;
  const double elapsed = std::max(0.0, SecondsOf(now - log.start));
  const auto it = models_.find(log.stored_model);
  if (it == models_.end() || it->second.computed_tokens <= 0) return elapsed;
  const Sums& sums = it->second;
  const double seconds_per_token = sums.seconds / sums.computed_tokens;
  if (!log.prompt_tokens) return static_cast<double>(log.body_bytes) * sums.seconds / sums.body_bytes;
  const double done = log.queued ? std::max(0.0, elapsed - SecondsOf(*log.queued)) : 0;
  return std::max(0.0, ComputedTokens(log) * seconds_per_token - done);
}

double PrefillEstimates::BytesPerSecond(const std::string& model) const {
  const auto it = models_.find(model);
  if (it == models_.end() || it->second.seconds <= 0 || it->second.prompt_tokens <= 0) return 0;
  const Sums& sums = it->second;
  return sums.body_bytes / sums.prompt_tokens * sums.computed_tokens / sums.seconds;
}

}  // namespace quire::server
