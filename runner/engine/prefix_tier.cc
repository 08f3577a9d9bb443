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
// Of a fetch before computing a token was ever measured.
constexpr auto kUnmeasured = std::chrono::seconds(30);

// For tests: fetch whatever lies below, profitable or not, and wait for it.
bool AlwaysFetch() {
  static const bool always = std::getenv("QUIRE_SNAPSHOT_ALWAYS_FETCH") != nullptr;
  return always;
}

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
  return asks;
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
    deadline_ = began_ + kUnmeasured;
    return;
  }
}

bool PrefixTier::Worthwhile(double token_seconds) const {
  if (AlwaysFetch() || token_seconds <= 0 || bytes_per_second_ <= 0) return true;
  const double compute = static_cast<double>(promotion_.offered_tokens()) * token_seconds;
  return static_cast<double>(promotion_.offered_bytes()) / bytes_per_second_ <= compute / 2;
}

void PrefixTier::Finish(ActiveRequest* request) {
  promotion_.Cancel();
  fetching_.reset();
  if (request != nullptr) request->tier_wait = ActiveRequest::TierWait::kDone;
}

bool PrefixTier::Poll(const ActiveRequests& waiting, double token_seconds) {
  using State = cache::Promotion::State;
  if (!fetching_) Start(waiting);
  if (fetching_) {
    ActiveRequest* request = Find(waiting, *fetching_);
    State state = request == nullptr ? State::kIdle : promotion_.Poll(kBytesPerStep);
    if (state == State::kOffered) {
      if (!Worthwhile(token_seconds)) return Finish(request), true;
      if (token_seconds > 0 && !AlwaysFetch()) {
        deadline_ =
            Clock::now() + DurationOf(static_cast<double>(promotion_.offered_tokens()) * token_seconds);
      }
      state = promotion_.Accept();
    }
    const uint64_t bytes = promotion_.counters().bytes - bytes_before_;
    if (state == State::kIdle && bytes > 0) {
      const double took = std::chrono::duration<double>(Clock::now() - began_).count();
      const double rate = static_cast<double>(bytes) / std::max(took, 1e-6);
      bytes_per_second_ = bytes_per_second_ <= 0 ? rate : 0.7 * bytes_per_second_ + 0.3 * rate;
    }
    if (state == State::kIdle || Clock::now() >= *deadline_) Finish(request);
    return true;
  }
  return link_->alive() && demotion_.Poll();
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
