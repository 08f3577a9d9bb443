// Who runs: admission, waiting for a common prefix, preemption.

#include <algorithm>
#include <chrono>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "runner/engine/engine.h"
#include "runner/engine/place_share.h"

namespace quire::runner::engine {
namespace {

// Beside the tokens it has, so that a sequence is not admitted only to be preempted by its own first answers.
constexpr int32_t kHeadroomTokens = 64;
// A reader that has taken nothing for so long gives up its place if others wait.
constexpr auto kStalledAfter = std::chrono::seconds(1);

}  // namespace

void Engine::Admit() {
  TrackStalls();
  while (!waiting_.empty()) {
    const bool full = static_cast<int32_t>(running_.size()) >= limits_.running_max;
    auto next = full ? std::nullopt : PickNext(MemoryLeft());
    if (!next) next = GiveUpPlace();
    if (!next) return;
    ActiveRequest& request = *waiting_[*next];
    if (auto leader = FindLeaderOf(request)) {
      request.leader = leader;
      continue;
    }
    auto admitted = std::move(waiting_[*next]);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(*next));
    Start(std::move(admitted));
  }
}

void Engine::TrackStalls() {
  for (const auto& request : running_) {
    if (!request->generation->backpressured()) {
      request->stalled_since.reset();
    } else if (!request->stalled_since) {
      request->stalled_since = Clock::now();
    }
  }
}

// For the request that would be next if there were a place and memory. It is admitted at once, so that the two do not
// change places forever.
std::optional<size_t> Engine::GiveUpPlace() {
  const auto next = PickNext(limits_.cache_bytes);
  if (!next || waiting_[*next]->preempted) return std::nullopt;
  std::vector<Place> places;
  places.reserve(running_.size());
  for (const auto& request : running_) {
    const bool stalled = request->stalled_since && Clock::now() - *request->stalled_since >= kStalledAfter;
    places.push_back({request->party, request->arrival, stalled, request->exact});
  }
  const auto given = PlaceToGive(places, waiting_[*next]->party);
  if (!given || BytesFor(*waiting_[*next]) > MemoryLeft() + running_[*given]->reserved_bytes)
    return std::nullopt;
  StepBack(running_.begin() + static_cast<ptrdiff_t>(*given), /*preempted=*/false);
  return next;
}

size_t Engine::MemoryLeft() const {
  size_t reserved = 0;
  for (const auto& request : running_) reserved += request->reserved_bytes;
  return limits_.cache_bytes - std::min(limits_.cache_bytes, reserved);
}

std::optional<size_t> Engine::PickNext(size_t bytes_left) {
  if (admission_paused_ && !running_.empty()) return std::nullopt;
  std::vector<WaitingState> states;
  states.reserve(waiting_.size());
  std::unordered_set<std::string_view> parties;
  for (const auto& request : running_) parties.insert(request->party);
  for (const auto& request : waiting_) {
    if (request->leader && !StillFollows(*request)) request->leader.reset();
    states.push_back({.virtual_time = shares_.Of(request->tenant).virtual_time,
                      .arrival = request->arrival,
                      .preempted = request->preempted,
                      .follows = request->leader.has_value() || request->generation->backpressured(),
                      .has_place = parties.contains(request->party),
                      .bytes = BytesFor(*request)});
  }
  return NextToAdmit(states, bytes_left, !running_.empty());
}

bool Engine::StillFollows(const ActiveRequest& request) const {
  const auto leader = std::ranges::find(running_, request.leader->id,
                                        [](const auto& other) { return other->generation->id(); });
  return leader != running_.end() && !(*leader)->generation->backpressured() &&
         (*leader)->generation->computed() < request.leader->until;
}

std::optional<Leader> Engine::FindLeaderOf(const ActiveRequest& request) {
  if (!limits_.prefix_cache || !request.reuses || running_.empty()) return std::nullopt;
  std::vector<RunningPrefix> prefixes;
  for (const auto& other : running_) {
    if (other->isolation != request.isolation || other->generation->prefill_left() == 0) continue;
    if (!other->reuses || other->generation->backpressured()) continue;
    prefixes.push_back({other->generation->id(), other->generation->tokens(), other->generation->computed()});
  }
  if (prefixes.empty()) return std::nullopt;
  const auto leader =
      FindLeader(request.generation->tokens(), prefixes_.Reusable(request, running_), prefixes);
  if (!leader) return std::nullopt;
  for (const auto& other : running_) {
    if (other->generation->id() == leader->id) prefixes_.ScheduleSnapshotAt(*other, leader->until);
  }
  return leader;
}

size_t Engine::BytesFor(const ActiveRequest& request) const {
  const int64_t tokens = static_cast<int64_t>(request.generation->tokens().size()) + kHeadroomTokens;
  return SequenceBytes(cache_->layout(), std::min<int64_t>(tokens, context_max_), StepTarget().tokens_max);
}

void Engine::Start(std::unique_ptr<ActiveRequest> request) {
  const PrefixReuse::Outcome reuse = prefixes_.AttachPrefix(*request, running_);
  // Its shared prefix is counted at the source.
  const size_t whole = BytesFor(*request);
  const size_t shared = reuse.reused > 0 ? SequenceBytes(cache_->layout(), reuse.reused, 0) : 0;
  request->reserved_bytes = whole - std::min(whole, shared);
  request->generation->Start(reuse.reused, reuse.miss);
  if (request->embedding) {
    Embedding& embedding = *request->embedding;
    embedding.pooler.emplace(embedding.pooling, model_.model->hidden_size(),
                             request->generation->prefill_left());
  }
  StartDraft(*request, reuse);
  running_.push_back(std::move(request));
}

bool Engine::PreemptYoungest() {
  if (running_.size() < 2) return false;
  // First those whose readers take nothing. One whose keys were shifted would come back with other bits: only when nobody
  // else is left.
  const auto youngest =
      std::ranges::max_element(running_, {}, [](const std::unique_ptr<ActiveRequest>& request) {
        return std::tuple(request->generation->backpressured(), request->exact, request->arrival);
      });
  StepBack(youngest, /*preempted=*/true);
  admission_paused_ = true;
  return true;
}

// What it computed becomes a snapshot.
void Engine::StepBack(ActiveRequests::iterator running, bool preempted) {
  ActiveRequest& request = **running;
  EndDraft(request);
  prefixes_.StorePrefix(request);
  request.reserved_bytes = 0;
  request.stalled_since.reset();
  request.preempted = preempted;
  waiting_.push_back(std::move(*running));
  running_.erase(running);
  ++preemptions_;
}

}  // namespace quire::runner::engine
