#include "runner/draft/cached_drafter.h"

#include <algorithm>
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

// What a running sequence has computed of the same tokens, where that is more than the store knows.
bool CachedDrafter::ForkNeighbour(const Beginning& beginning, CachedTrail& trail) {
  if (beginning.neighbour == nullptr) return false;
  const auto& other = static_cast<const CachedTrail&>(*beginning.neighbour);
  if (other.first != 0) return false;
  const cache::Position has = other.open ? other.open->base() : other.sequence.offset();
  const cache::Position shared = std::min<cache::Position>(beginning.shared - (options_.pairs ? 1 : 0), has);
  if (shared <= store_.Probe(beginning.isolation, beginning.tokens).restorable) return false;
  auto fork = cache_->Fork(other.sequence, shared);
  if (!fork || !fork->ready()) return false;
  trail.sequence = *std::move(fork);
  return true;
}

std::unique_ptr<Trail> CachedDrafter::Begin(const Beginning& beginning) {
  auto trail = std::make_unique<CachedTrail>();
  trail->isolation = beginning.isolation;
  trail->sequence = cache_->NewSequence();
  if (!ForkNeighbour(beginning, *trail)) {
    auto restored = store_.Restore(beginning.isolation, beginning.tokens, trail->sequence);
    trail->lease = std::move(restored.lease);
  }
  const auto boundaries = beginning.boundaries.last(std::min(beginning.boundaries.size(), kCapturesMax));
  for (const int32_t at : boundaries) {
    // Nothing is open on a new sequence; one that lies behind it already is refused, and need not be taken.
    (void)cache_->ScheduleCapture(trail->sequence, at - (options_.pairs ? 1 : 0));
  }
  return trail;
}

void CachedDrafter::Level(CachedTrail& trail, std::span<const TokenId> tokens, ThreadPool& pool) {
  if (!trail.open) return;
  ptrdiff_t right = 0;
  if (!options_.pairs) {
    const auto behind = tokens.subspan(std::min(static_cast<size_t>(trail.open->base()), tokens.size()));
    right = std::ranges::mismatch(trail.open_tokens, behind).in1 - trail.open_tokens.begin();
  }
  const auto replay = [&](size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t count) {
    Replay(layer, slot, inputs, count, pool);
  };
  if (!trail.open->Commit(static_cast<int32_t>(right), replay)) trail.open->Drop();
  trail.open.reset();
  trail.open_tokens.clear();
}

void CachedDrafter::ClearBatch() {
  appends_.clear();
  batch_.tokens.clear();
  batch_.row_begin.assign(1, 0);
  batch_.logit_rows.clear();
}

void CachedDrafter::AddRows(Round& round) {
  const auto end = static_cast<int32_t>(batch_.tokens.size());
  appends_.push_back({&round.trail->sequence, end - batch_.row_begin.back()});
  batch_.row_begin.push_back(end);
  if (round.guesses) batch_.logit_rows.push_back(end - 1);
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
    if (!round.guesses) continue;
    const auto logits =
        std::span(logits_).subspan(row++ * width, width).first(static_cast<size_t>(options_.vocab));
    round.wish->guesses->push_back(static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()));
  }
  return true;
}

bool CachedDrafter::GuessOn(ThreadPool& pool) {
  ClearBatch();
  size_t row = 0;
  for (Round& round : rounds_) {
    if (!round.guesses) continue;
    const size_t from = row++;
    const std::vector<TokenId>& guesses = *round.wish->guesses;
    round.guesses = std::ssize(guesses) < round.wish->depth;
    if (!round.guesses) continue;
    CachedTrail& trail = *round.trail;
    if (!trail.open) {
      auto open = cache_->Speculate(trail.sequence, cache::DraftMode::kLive);
      round.guesses = open.has_value();
      if (!open) continue;
      trail.open.emplace(*std::move(open));
    }
    PrepareGuess(from);
    batch_.tokens.push_back(guesses.back());
    AddRows(round);
  }
  if (appends_.empty()) return false;
  // Before Run() puts the next ones behind them.
  for (const Round& round : rounds_) {
    if (round.guesses) round.trail->open_tokens.push_back(round.wish->guesses->back());
  }
  if (Run(pool)) return true;
  for (const Round& round : rounds_) {
    if (round.guesses) round.trail->open_tokens.pop_back();
  }
  return false;
}

void CachedDrafter::Guess(std::span<const Wish> wishes, ThreadPool& pool) {
  rounds_.clear();
  ClearBatch();
  for (const Wish& wish : wishes) {
    if (wish.guesses != nullptr) wish.guesses->clear();
    auto& trail = static_cast<CachedTrail&>(*wish.trail);
    Level(trail, wish.tokens, pool);
    if (!trail.sequence.ready()) continue;
    const Certain certain = AddCertain(wish, trail);
    if (certain.rows == 0) continue;
    rounds_.push_back({&wish, &trail, wish.depth > 0 && certain.level});
    AddRows(rounds_.back());
  }
  if (rounds_.empty() || !Run(pool)) return;
  for (const Round& round : rounds_) Collect(*round.trail, round.wish->tokens);
  while (GuessOn(pool)) {
  }
}

void CachedDrafter::Collect(CachedTrail& trail, std::span<const TokenId> tokens) {
  for (cache::Snapshot& snapshot : cache_->TakeCaptures(trail.sequence)) {
    if (trail.first != 0 || snapshot.empty() || !snapshot.whole() || !snapshot.exact()) continue;
    const auto prefix = tokens.first(KeyTokens(snapshot.to()));
    if (auto lease = store_.Insert(trail.isolation, prefix, std::move(snapshot)))
      trail.lease = std::move(*lease);
  }
}

void CachedDrafter::End(std::unique_ptr<Trail> trail, std::span<const TokenId> tokens) {
  auto& own = static_cast<CachedTrail&>(*trail);
  store_.AdvanceClock();
  // Of guesses nobody will tell any more whether they were right.
  own.open.reset();
  const auto entries = own.sequence.offset();
  if (own.first != 0 || entries == 0 || KeyTokens(entries) > tokens.size() || !own.sequence.ready()) return;
  Collect(own, tokens);
  auto last = cache_->Take(own.sequence);
  if (!last || last->empty() || !last->whole() || !last->exact()) return;
  (void)store_.Insert(own.isolation, tokens.first(KeyTokens(entries)), std::move(*last));
}

}  // namespace quire::runner::draft
