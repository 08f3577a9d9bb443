#include "runner/engine/steps/prefix_tier.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "api/base/test_switch.h"

namespace quire::runner::engine {
namespace {

// Fewer tokens are computed sooner than asked for.
constexpr int32_t kTokensMin = 32;
// Copied between two steps, in either direction.
constexpr size_t kBytesPerStep = size_t{4} << 20;
// The silence that ends a tier: pieces are asked for every 16 ms.
constexpr auto kSilenceMax = std::chrono::milliseconds(250);

// For tests: fetch whatever lies below, profitable or not, and wait for it.
bool AlwaysFetch() { return api::TestSwitch("QUIRE_SNAPSHOT_ALWAYS_FETCH") != nullptr; }

}  // namespace

PrefixTier::PrefixTier(cache::HybridCache& cache, cache::SnapshotStore& store, std::unique_ptr<TierLink> link)
    : link_(std::move(link)),
      promotion_(cache, store, *link_),
      demotion_(cache, store, *link_),
      timing_(AlwaysFetch()) {}

bool PrefixTier::StandsAside(ActiveRequest& request, int32_t reusable) {
  auto& until = request.waiting().tier_until;
  if (std::exchange(request.tried_tier, true)) return until.has_value();
  const auto tokens = static_cast<int32_t>(request.generation->ReusableTokens().size());
  const bool asks = link_->alive() && request.reuses && tokens - 1 - reusable >= kTokensMin;
  if (asks) until = Clock::now() + timing_.TimeToWait(tokens - reusable);
  return asks;
}

void PrefixTier::EndWaits(const ActiveRequests& waiting) const {
  const auto now = Clock::now();
  for (const auto& request : waiting) {
    auto& until = request->waiting().tier_until;
    if (until && now >= *until) until.reset();
  }
}

ActiveRequest* PrefixTier::Find(const ActiveRequests& waiting, api::RequestId id) const {
  const auto found =
      std::ranges::find(waiting, id, [](const auto& request) { return request->generation->id(); });
  return found == waiting.end() ? nullptr : found->get();
}

void PrefixTier::Start(const ActiveRequests& waiting) {
  for (const auto& request : waiting) {
    if (!request->waiting().tier_until) continue;
    if (!promotion_.Begin(request->isolation, request->generation->sequence().tokens(),
                          request->party.name())) {
      request->waiting().tier_until.reset();
      continue;
    }
    fetching_ = request->generation->id();
    began_ = Clock::now();
    bytes_before_ = promotion_.counters().bytes;
    return;
  }
}

void PrefixTier::Finish(ActiveRequest* request) {
  promotion_.Cancel();
  fetching_.reset();
  if (request != nullptr) request->waiting().tier_until.reset();
}

bool PrefixTier::Poll(const ActiveRequests& waiting, double token_seconds) {
  using State = cache::Promotion::State;
  timing_.SetTokenSeconds(token_seconds);
  if (!fetching_) Start(waiting);
  if (!fetching_) return link_->alive() && demotion_.Poll();
  EndWaits(waiting);
  ActiveRequest* request = Find(waiting, *fetching_);
  const bool waits = request != nullptr && request->waiting().tier_until;
  State state = waits ? promotion_.Poll(kBytesPerStep) : State::kIdle;
  if (state == State::kOffered) {
    const bool fetch = timing_.Worthwhile(promotion_.offered_tokens(), promotion_.offered_bytes());
    state = fetch ? promotion_.Accept() : State::kIdle;
  }
  if (state != State::kIdle) return true;
  timing_.AddFetch(promotion_.counters().bytes - bytes_before_, Clock::now() - began_);
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
  auto answer_until = Clock::now() + kSilenceMax;
  for (uint64_t answers = link_->answers(); link_->alive() && demotion_.Poll();) {
    if (std::exchange(answers, link_->answers()) != answers) answer_until = Clock::now() + kSilenceMax;
    if (Clock::now() >= std::min(until, answer_until)) return;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace quire::runner::engine
