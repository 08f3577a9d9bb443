#include "runner/draft/cached_drafter.h"

#include <algorithm>
#include <new>
#include <utility>

namespace quire::runner::draft {
namespace {

constexpr size_t kCapturesMax = 6;  // boundaries of a prompt that keep a snapshot: the last ones

}  // namespace

CachedDrafter::CachedDrafter(std::unique_ptr<cache::HybridCache> cache, const Options& options)
    : options_(options),
      cache_(std::move(cache)),
      store_(*cache_, {.budget_bytes = options.cache_bytes, .lookahead = options.pairs}) {}

size_t CachedDrafter::KeyTokens(cache::Position entries) const {
  return static_cast<size_t>(entries) + (options_.pairs ? 1 : 0);
}

// The tokens that a running sequence has computed, if it has more of them than the store.
bool CachedDrafter::ForkNeighbor(const DraftContext& context, CachedDraftState& state) {
  if (context.neighbor == nullptr) return false;
  const auto& other = static_cast<const CachedDraftState&>(*context.neighbor);
  if (other.first != 0) return false;
  const cache::Position has = other.open ? other.open->base() : other.sequence.offset();
  const cache::Position shared = std::min<cache::Position>(context.shared - (options_.pairs ? 1 : 0), has);
  if (shared <= store_.Probe(context.isolation, context.tokens).restorable) return false;
  auto fork = cache_->Fork(other.sequence, shared);
  if (!fork || !fork->ready()) return false;
  state.sequence = *std::move(fork);
  return true;
}

std::unique_ptr<DraftState> CachedDrafter::CreateState(const DraftContext& context) {
  auto state = std::make_unique<CachedDraftState>();
  state->isolation = context.isolation;
  state->owner = context.owner;
  state->sequence = cache_->NewSequence();
  if (!state->sequence) throw std::bad_alloc();
  if (!ForkNeighbor(context, *state)) {
    auto restored = store_.Restore(context.isolation, context.tokens, state->sequence, context.owner);
    state->lease = std::move(restored.lease);
  }
  const auto boundaries = context.boundaries.last(std::min(context.boundaries.size(), kCapturesMax));
  for (const int32_t at : boundaries) {
    // Nothing is open on a new sequence; one that lies behind it already is refused, and need not be taken.
    (void)cache_->ScheduleCapture(state->sequence, at - (options_.pairs ? 1 : 0));
  }
  return state;
}

void CachedDrafter::RollBack(CachedDraftState& state, std::span<const TokenId> tokens, ThreadPool& pool) {
  if (!state.open) return;
  ptrdiff_t accepted = 0;
  if (!options_.pairs) {
    // The newest token is computed again, whoever proposed it: the next draft begins with its logits.
    const auto older = tokens.first(tokens.empty() ? 0 : tokens.size() - 1);
    const auto behind = older.subspan(std::min(static_cast<size_t>(state.open->base()), older.size()));
    accepted = std::ranges::mismatch(state.open_tokens, behind).in1 - state.open_tokens.begin();
  }
  const auto replay = [&](size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t count) {
    Replay(layer, slot, inputs, count, pool);
  };
  if (!state.open->Commit(static_cast<int32_t>(accepted), replay)) state.open->Drop();
  state.open.reset();
  state.open_tokens.clear();
}

void CachedDrafter::ClearBatch() {
  appends_.clear();
  batch_.tokens.clear();
  batch_.row_begin.assign(1, 0);
  batch_.logit_rows.clear();
}

void CachedDrafter::AddRows(Round& round) {
  const auto end = static_cast<int32_t>(batch_.tokens.size());
  appends_.push_back({&round.state->sequence, end - batch_.row_begin.back()});
  batch_.row_begin.push_back(end);
  if (round.drafting) batch_.logit_rows.push_back(end - 1);
}

bool CachedDrafter::Run(ThreadPool& pool) {
  auto step = cache_->Begin(appends_);
  if (!step) return false;
  const auto width = static_cast<size_t>(options_.logits);
  logits_.resize(batch_.logit_rows.size() * width);
  Forward(**step, pool, logits_);
  (*step)->Commit();
  size_t row = 0;
  for (const Round& round : rounds_) {
    if (!round.drafting) continue;
    const auto logits =
        std::span(logits_).subspan(row++ * width, width).first(static_cast<size_t>(options_.vocab));
    round.request->draft_tokens->push_back(
        static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()));
  }
  return true;
}

bool CachedDrafter::ExtendDrafts(ThreadPool& pool) {
  ClearBatch();
  size_t row = 0;
  for (Round& round : rounds_) {
    if (!round.drafting) continue;
    const size_t from = row++;
    const std::vector<TokenId>& drafts = *round.request->draft_tokens;
    round.drafting = std::ssize(drafts) < round.request->num_draft_tokens;
    if (!round.drafting) continue;
    CachedDraftState& state = *round.state;
    if (!state.open) {
      auto open = cache_->Speculate(state.sequence);
      round.drafting = open.has_value();
      if (!open) continue;
      state.open.emplace(*std::move(open));
    }
    PrepareDraftToken(from);
    batch_.tokens.push_back(drafts.back());
    AddRows(round);
  }
  if (appends_.empty()) return false;
  // Before Run() puts the next ones behind them.
  for (const Round& round : rounds_) {
    if (round.drafting) round.state->open_tokens.push_back(round.request->draft_tokens->back());
  }
  if (Run(pool)) return true;
  for (const Round& round : rounds_) {
    if (round.drafting) round.state->open_tokens.pop_back();
  }
  return false;
}

void CachedDrafter::ProposeDrafts(std::span<const DraftRequest> requests, ThreadPool& pool) {
  rounds_.clear();
  ClearBatch();
  for (const DraftRequest& request : requests) {
    if (request.draft_tokens != nullptr) request.draft_tokens->clear();
    auto& state = static_cast<CachedDraftState&>(*request.state);
    RollBack(state, request.tokens, pool);
    if (!state.sequence.ready()) continue;
    const Confirmed confirmed = AddConfirmed(request, state);
    if (confirmed.rows == 0) continue;
    rounds_.push_back({&request, &state, request.num_draft_tokens > 0 && confirmed.caught_up});
    AddRows(rounds_.back());
  }
  if (rounds_.empty() || !Run(pool)) return;
  for (const Round& round : rounds_) Collect(*round.state, round.request->tokens);
  while (ExtendDrafts(pool)) {
  }
}

void CachedDrafter::Collect(CachedDraftState& state, std::span<const TokenId> tokens) {
  for (cache::Snapshot& snapshot : cache_->TakeCaptures(state.sequence)) {
    if (state.first != 0 || snapshot.empty() || !snapshot.whole() || !snapshot.exact()) continue;
    const auto prefix = tokens.first(KeyTokens(snapshot.to()));
    if (auto lease = store_.Insert(state.isolation, prefix, std::move(snapshot), false, state.owner))
      state.lease = std::move(*lease);
  }
}

void CachedDrafter::End(std::unique_ptr<DraftState> state, std::span<const TokenId> tokens) {
  auto& own = static_cast<CachedDraftState&>(*state);
  store_.AdvanceClock();
  // Open drafts will never be verified.
  own.open.reset();
  const auto entries = own.sequence.offset();
  if (own.first != 0 || entries == 0 || KeyTokens(entries) > tokens.size() || !own.sequence.ready()) return;
  Collect(own, tokens);
  auto last = cache_->CaptureSnapshot(own.sequence);
  if (!last || last->empty() || !last->whole() || !last->exact()) return;
  (void)store_.Insert(own.isolation, tokens.first(KeyTokens(entries)), std::move(*last), false, own.owner);
}

}  // namespace quire::runner::draft
