#include "runner/engine/steps/prefix_reuse.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "runner/engine/steps/admission.h"

namespace quire::runner::engine {
namespace {

constexpr int32_t kIntervalMin = 256;
constexpr int32_t kIntervalMax = 8192;
constexpr size_t kLastBoundaries = 4;
// A prompt asked again is restored before its last message's end; beyond this many tokens of it a snapshot of
// its own pays.
constexpr int32_t kTailMax = 16;

bool Sliceable(const cache::Layout& layout) {
  return layout.recurrent.empty() &&
         std::ranges::all_of(layout.groups,
                             [](const cache::AttentionGroup& group) { return group.window == 0; });
}

std::string MissText(cache::MissReason reason, int64_t matched) {
  if (reason == cache::MissReason::kNone) return {};
  if (reason == cache::MissReason::kDiverged) return fmt::format("diverged@{}", matched);
  return std::string(cache::Name(reason));
}

}  // namespace

int32_t SnapshotInterval(const cache::Layout& layout) {
  size_t state = layout.recurrent.empty() ? 0 : cache::StoredSlotBytes(layout);
  size_t token = 1;
  for (size_t i = 0; i < layout.groups.size(); ++i) {
    const auto page_tokens = static_cast<size_t>(layout.page_tokens);
    const size_t per_token = cache::PageBytes(layout, i) / page_tokens;
    if (layout.groups[i].window == 0) {
      token += per_token;
    } else {
      state += per_token * static_cast<size_t>(layout.groups[i].window);
    }
  }
  const size_t tokens = std::min<size_t>(state / token, kIntervalMax);
  return std::max(kIntervalMin, static_cast<int32_t>(std::bit_ceil(tokens)));
}

std::vector<int32_t> SnapshotOffsets(std::span<const int32_t> boundaries, int32_t reused, int32_t diverged,
                                     int32_t size, int32_t interval) {
  std::vector<int32_t> offsets;
  const auto add = [&](int32_t at) {
    if (at > reused && at < size) offsets.push_back(at);
  };
  int32_t last_kept = reused;
  for (size_t i = 0; i < boundaries.size(); ++i) {
    const bool apart = boundaries[i] - last_kept >= interval / 4;
    if (i != 0 && i + kLastBoundaries < boundaries.size() && !apart) continue;
    add(boundaries[i]);
    last_kept = boundaries[i];
  }
  add(diverged);
  for (int32_t at = reused - reused % interval + interval; at < size; at += interval) add(at);
  if (boundaries.empty() || size - boundaries.back() > kTailMax) add(size - 1);
  std::ranges::sort(offsets);
  offsets.erase(std::ranges::unique(offsets).begin(), offsets.end());
  return offsets;
}

PrefixReuse::PrefixReuse(cache::HybridCache& cache, size_t budget_bytes, bool enabled)
    : cache_(cache),
      store_(cache, {.budget_bytes = budget_bytes}),
      enabled_(enabled),
      sliceable_(Sliceable(cache.layout())),
      interval_(SnapshotInterval(cache.layout())) {}

void PrefixReuse::AddTier(std::unique_ptr<TierLink> link) {
  if (enabled_) tier_ = std::make_unique<PrefixTier>(cache_, store_, std::move(link));
}

bool PrefixReuse::StandsAside(ActiveRequest& request, const ActiveRequests& running) {
  return tier_ && tier_->StandsAside(request, Reusable(request, running));
}

PrefixReuse::Source PrefixReuse::LongestRunning(const ActiveRequest& request,
                                                const ActiveRequests& running) const {
  Source best;
  const auto tokens = request.generation->ReusableTokens();
  for (const auto& other : running) {
    if (other.get() == &request || other->isolation != request.isolation || !other->running().cached.exact)
      continue;
    const auto computed = other->generation->sequence().tokens().first(
        static_cast<size_t>(other->generation->sequence().computed()));
    // Only one with the token behind the best one's shares more: many may have one long text in common.
    const auto next = static_cast<size_t>(best.tokens);
    if (next >= computed.size() || next + 1 >= tokens.size() || computed[next] != tokens[next]) continue;
    const int32_t shared = std::min(CommonPrefix(tokens, computed), static_cast<int32_t>(tokens.size()) - 1);
    const bool reachable = sliceable_ || shared == other->generation->sequence().computed();
    if (reachable && shared > best.tokens) best = {other.get(), shared};
  }
  return best;
}

int32_t PrefixReuse::Reusable(const ActiveRequest& request, const ActiveRequests& running) {
  if (!enabled_ || !request.reuses) return 0;
  const auto stored = store_.Probe(request.isolation, request.generation->ReusableTokens()).restorable;
  return std::max(static_cast<int32_t>(stored), LongestRunning(request, running).tokens);
}

PrefixReuse::Outcome PrefixReuse::AttachPrefix(ActiveRequest& request, const ActiveRequests& running) {
  CacheState& cached = request.running().cached;
  cached.exact = true;
  cached.sequence = cache_.NewSequence();
  if (!cached.sequence) throw std::bad_alloc();  // stops the runner
  cached.claim = store_.EnterRunning(request.party.name());
  cached.claimed_from = 0;
  cached.shared_tokens = 0;
  if (!enabled_ || !request.reuses) return {.miss = "off"};
  const auto tokens = request.generation->sequence().tokens();
  const auto reusable = request.generation->ReusableTokens();
  const auto probed = store_.Probe(request.isolation, tokens);
  const bool all = reusable.size() == tokens.size();
  const auto restorable = all ? probed.restorable : store_.Probe(request.isolation, reusable).restorable;
  auto diverged = static_cast<int32_t>(probed.matched);
  Outcome outcome;
  if (const Source source = LongestRunning(request, running); source.tokens > restorable) {
    auto fork = cache_.Fork(source.request->running().cached.sequence, source.tokens);
    if (fork && fork->ready()) {
      cached.sequence = std::move(*fork);
      outcome.reused = source.tokens;
      outcome.source = source.request;
      diverged = std::max(diverged, source.tokens);
      if (outcome.reused + 1 < static_cast<int32_t>(tokens.size())) {
        outcome.miss = MissText(cache::MissReason::kDiverged, diverged);
      }
    }
  }
  if (outcome.reused == 0) {
    auto restored = store_.Restore(request.isolation, reusable, cached.sequence, request.party.name());
    cached.lease = std::move(restored.lease);
    outcome = {static_cast<int32_t>(restored.restored),
               all ? MissText(restored.reason, restored.matched) : "off"};
  }
  // Tokens generated before a preemption are not part of a prompt that others share.
  const int32_t prompt =
      std::min(request.generation->sequence().prompt_tokens(), static_cast<int32_t>(tokens.size()));
  if (diverged > 0 && diverged + 1 < prompt) RecordDivergence(request, diverged, outcome);
  std::vector<int32_t> offsets;
  if (!sliceable_) offsets = SnapshotOffsets(request.boundaries, outcome.reused, diverged, prompt, interval_);
  for (const int32_t at : request.restore_points) {
    if (at > outcome.reused && at < prompt) offsets.push_back(at);
  }
  std::ranges::sort(offsets);
  offsets.erase(std::ranges::unique(offsets).begin(), offsets.end());
  for (const int32_t at : offsets) Schedule(request, at);
  cached.claimed_from = outcome.reused;
  cached.shared_tokens = outcome.reused;
  return outcome;
}

void PrefixReuse::RecordDivergence(const ActiveRequest& request, int32_t at, Outcome& outcome) {
  const auto tokens = request.generation->sequence().tokens();
  if (outcome.source != nullptr) {
    const auto known = outcome.source->generation->sequence().tokens().subspan(static_cast<size_t>(at));
    const auto shown = known.first(std::min(known.size(), kShownTokens));
    outcome.known.assign(shown.begin(), shown.end());
  } else {
    outcome.known = store_.Continuation(request.isolation, tokens, at, kShownTokens);
  }
  if (!outcome.known.empty()) outcome.diverged = at;
}

void PrefixReuse::ScheduleSnapshotAt(ActiveRequest& request, int32_t offset) {
  if (!sliceable_) Schedule(request, offset);
}

void PrefixReuse::Schedule(ActiveRequest& request, int32_t offset) {
  cache::Sequence& sequence = request.running().cached.sequence;
  if (!enabled_ || !request.reuses || offset <= sequence.offset()) return;
  // A draft or a step that is open would refuse it; the engine has neither between its steps.
  (void)cache_.ScheduleCapture(sequence, offset);
}

void PrefixReuse::Insert(ActiveRequest& request, cache::Snapshot snapshot) {
  if (snapshot.empty() || !snapshot.whole() || !snapshot.exact()) return;
  const auto tokens = request.generation->sequence().tokens().first(static_cast<size_t>(snapshot.to()));
  const bool marked = std::ranges::binary_search(request.restore_points, snapshot.to());
  // Rejected only for lack of memory: then the prefix is computed again next time.
  auto lease = store_.Insert(request.isolation, tokens, std::move(snapshot), marked, request.party.name());
  if (!lease) return;
  CacheState& cached = *request.cached();
  cached.lease = std::move(*lease);
  cached.claimed_from = static_cast<int32_t>(tokens.size());
  if (tier_) tier_->Stored(request.isolation, tokens, request.party.name());
}

void PrefixReuse::Collect(ActiveRequest& request) {
  CacheState& cached = *request.cached();
  if (!enabled_) return UpdateClaim(cached);
  for (cache::Snapshot& snapshot : cache_.TakeCaptures(cached.sequence)) Insert(request, std::move(snapshot));
  UpdateClaim(cached);
}

// What it reused or has left is stored, and counts there.
void PrefixReuse::UpdateClaim(CacheState& cached) const {
  const int64_t tokens = cached.sequence ? cached.sequence.offset() - cached.claimed_from : 0;
  cached.claim.SetBytes(tokens > 0 ? SequenceBytes(cache_.layout(), tokens, 0) : 0);
}

void PrefixReuse::StorePrefix(ActiveRequest& request) {
  CacheState* const cached = request.cached();
  if (cached == nullptr) return;
  if (enabled_ && request.reuses && cached->sequence && cached->exact) {
    Collect(request);
    if (cached->sequence.ready() && cached->sequence.offset() > 0) {
      cached->claim.SetBytes(0);  // it is stored from here on
      if (auto last = cache_.CaptureSnapshot(cached->sequence)) Insert(request, std::move(*last));
    }
  }
  *cached = {};
}

}  // namespace quire::runner::engine
