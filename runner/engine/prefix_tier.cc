#include "runner/engine/prefix_tier.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

namespace quire::runner::engine {
namespace {

// Fewer tokens are computed sooner than asked for.
constexpr int32_t kTokensMin = 32;
// Copied between two steps, in either direction.
constexpr size_t kBytesPerStep = size_t{4} << 20;
// Of computing a token before that was ever measured: not less than small models take.
constexpr double kUnmeasuredTokenSeconds = 1e-3;
// When fetching took too long, the next ones are predicted to be this much faster, so that it is tried again.
constexpr double kOptimism = 1.1;

// For tests: fetch whatever lies below, profitable or not, and wait for it.
bool AlwaysFetch() { return std::getenv("QUIRE_SNAPSHOT_ALWAYS_FETCH") != nullptr; }

std::chrono::nanoseconds DurationOf(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

PrefixTier::PrefixTier(cache::HybridCache& cache, cache::SnapshotStore& store, std::unique_ptr<TierLink> link)
    : store_(store),
      link_(std::move(link)),
      promotion_(cache, store, *link_),
      demotion_(cache, store, *link_) {}

bool PrefixTier::StandsAside(ActiveRequest& request, int32_t reusable) {
  using Wait = ActiveRequest::TierWait;
  if (request.tier_wait != Wait::kNotAsked) return request.tier_wait == Wait::kWaiting;
  const auto tokens = static_cast<int32_t>(request.generation->tokens().size());
  const bool asks = link_->alive() && request.reuses && tokens - 1 - reusable >= kTokensMin;
  request.tier_wait = asks ? Wait::kWaiting : Wait::kDone;
  request.tier_deadline = Clock::now() + TimeToCompute(tokens - reusable);
  return asks;
}

std::chrono::nanoseconds PrefixTier::TimeToCompute(int64_t tokens) const {
  if (AlwaysFetch()) return std::chrono::minutes(2);
  return DurationOf(static_cast<double>(tokens) *
                    (token_seconds_ > 0 ? token_seconds_ : kUnmeasuredTokenSeconds));
}

void PrefixTier::EndWaits(const ActiveRequests& waiting) const {
  const auto now = Clock::now();
  for (const auto& request : waiting) {
    if (request->tier_wait != ActiveRequest::TierWait::kWaiting || now < request->tier_deadline) continue;
    request->tier_wait = ActiveRequest::TierWait::kDone;
  }
}

ActiveRequest* PrefixTier::Find(const ActiveRequests& waiting, api::RequestId id) const {
  const auto found =
      std::ranges::find(waiting, id, [](const auto& request) { return request->generation->id(); });
  return found == waiting.end() ? nullptr : found->get();
}

void PrefixTier::Start(const ActiveRequests& waiting) {
  for (const auto& request : waiting) {
    if (request->tier_wait != ActiveRequest::TierWait::kWaiting) continue;
    if (!promotion_.Begin(request->isolation, request->generation->tokens())) {
      request->tier_wait = ActiveRequest::TierWait::kDone;
      continue;
    }
    fetching_ = request->generation->id();
    began_ = Clock::now();
    bytes_before_ = promotion_.counters().bytes;
    return;
  }
}

bool PrefixTier::Worthwhile() {
  if (AlwaysFetch() || token_seconds_ <= 0 || bytes_per_second_ <= 0) return true;
  const double compute = static_cast<double>(promotion_.offered_tokens()) * token_seconds_;
  if (static_cast<double>(promotion_.offered_bytes()) / bytes_per_second_ <= compute / 2) return true;
  bytes_per_second_ *= kOptimism;
  return false;
}

void PrefixTier::Finish(ActiveRequest* request) {
  promotion_.Cancel();
  fetching_.reset();
  if (request != nullptr) request->tier_wait = ActiveRequest::TierWait::kDone;
}

bool PrefixTier::Poll(const ActiveRequests& waiting, double token_seconds) {
  using State = cache::Promotion::State;
  token_seconds_ = token_seconds;
  if (!fetching_) Start(waiting);
  if (!fetching_) return link_->alive() && demotion_.Poll();
  EndWaits(waiting);
  ActiveRequest* request = Find(waiting, *fetching_);
  const bool waits = request != nullptr && request->tier_wait == ActiveRequest::TierWait::kWaiting;
  State state = waits ? promotion_.Poll(kBytesPerStep) : State::kIdle;
  if (state == State::kOffered) state = Worthwhile() ? promotion_.Accept() : State::kIdle;
  if (state != State::kIdle) return true;
  const uint64_t bytes = promotion_.counters().bytes - bytes_before_;
  if (bytes > 0) {
    const double took = std::chrono::duration<double>(Clock::now() - began_).count();
    const double rate = static_cast<double>(bytes) / std::max(took, 1e-6);
    bytes_per_second_ = bytes_per_second_ <= 0 ? rate : 0.7 * bytes_per_second_ + 0.3 * rate;
  }
  Finish(request);
  return true;
}

bool PrefixTier::ReleaseMemory() {
  if (promotion_.state() != cache::Promotion::State::kFetching) return false;
  promotion_.Cancel();
  return true;
}

void PrefixTier::Flush(std::chrono::nanoseconds time) {
  promotion_.Cancel();
  const auto until = Clock::now() + time;
  while (link_->alive() && Clock::now() < until && demotion_.Poll()) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace quire::runner::engine
