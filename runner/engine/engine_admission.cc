// Who runs: admission, waiting for a common prefix, preemption.

#include <algorithm>
#include <utility>

#include "runner/engine/engine.h"

namespace quire::runner::engine {
namespace {

// Beside the tokens it has, so that a sequence is not admitted only to be preempted by its own first answers.
constexpr int32_t kHeadroomTokens = 64;

}  // namespace

void Engine::Admit() {
  while (!waiting_.empty() && static_cast<int32_t>(running_.size()) < limits_.running_max) {
    const auto next = PickNext();
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

std::optional<size_t> Engine::PickNext() {
  if (admission_paused_ && !running_.empty()) return std::nullopt;
  size_t reserved = 0;
  for (const auto& request : running_) reserved += request->reserved_bytes;
  std::vector<WaitingState> states;
  states.reserve(waiting_.size());
  for (const auto& request : waiting_) {
    if (request->leader && !StillFollows(*request)) request->leader.reset();
    states.push_back({.virtual_time = shares_.Of(request->tenant).virtual_time,
                      .arrival = request->arrival,
                      .preempted = request->preempted,
                      .follows = request->leader.has_value(),
                      .bytes = BytesFor(*request)});
  }
  return NextToAdmit(states, limits_.cache_bytes - std::min(limits_.cache_bytes, reserved),
                     !running_.empty());
}

bool Engine::StillFollows(const ActiveRequest& request) const {
  const auto leader = std::ranges::find(running_, request.leader->id,
                                        [](const auto& other) { return other->generation->id(); });
  return leader != running_.end() && (*leader)->generation->computed() < request.leader->until;
}

std::optional<Leader> Engine::FindLeaderOf(const ActiveRequest& request) {
  if (!limits_.prefix_cache || !request.reuses || running_.empty()) return std::nullopt;
  std::vector<RunningPrefix> prefixes;
  for (const auto& other : running_) {
    if (other->isolation != request.isolation || other->generation->prefill_left() == 0) continue;
    if (!other->reuses) continue;
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
  // One whose keys were shifted would come back with other bits: only when nobody else is left.
  const auto youngest =
      std::ranges::max_element(running_, {}, [](const std::unique_ptr<ActiveRequest>& request) {
        return std::pair(request->exact, request->arrival);
      });
  ActiveRequest& request = **youngest;
  EndDraft(request);
  prefixes_.StorePrefix(request);
  request.preempted = true;
  request.reserved_bytes = 0;
  waiting_.push_back(std::move(*youngest));
  running_.erase(youngest);
  admission_paused_ = true;
  ++preemptions_;
  return true;
}

}  // namespace quire::runner::engine
