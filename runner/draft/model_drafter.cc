#include "runner/draft/model_drafter.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/hybrid_cache.h"
#include "cache/snapshot_store.h"

namespace quire::runner::draft {
namespace {

constexpr int32_t kCatchUpMax = 512;  // tokens of one sequence computed in one go
constexpr size_t kCapturesMax = 6;    // boundaries of a prompt that keep a snapshot: the last ones

struct ModelTrail final : Trail {
  cache::Sequence sequence;
  cache::Lease lease;
  std::string isolation;
  std::vector<TokenId> open_tokens;        // guesses that were computed behind what is certain
  std::optional<cache::Speculation> open;  // their transaction; closed before the sequence is gone
};

class ModelDrafter final : public Drafter {
 public:
  ModelDrafter(std::unique_ptr<models::Model> model, int32_t vocab, std::unique_ptr<cache::HybridCache> cache,
               size_t cache_bytes)
      : model_(std::move(model)),
        vocab_(vocab),
        cache_(std::move(cache)),
        store_(*cache_, {.budget_bytes = cache_bytes}) {}

  const std::string& architecture() const override { return model_->architecture(); }
  int64_t weight_bytes() const override { return model_->weight_bytes(); }
  HiddenWanted hidden_wanted() const override { return HiddenWanted::kNone; }
  bool follows() const override { return true; }

  std::unique_ptr<Trail> Begin(const Beginning& beginning) override;
  void Guess(std::span<const Wish> wishes, ThreadPool& pool) override;
  void End(std::unique_ptr<Trail> trail, std::span<const TokenId> tokens) override;

 private:
  // One sequence of a call.
  struct Round {
    const Wish* wish = nullptr;
    ModelTrail* trail = nullptr;
    int32_t tokens = 0;  // certain ones to compute, the newest among them where `guesses`
    bool guesses = false;
  };

  // Leaves wrong guesses behind: the trail is then at a prefix of `tokens`.
  void Level(ModelTrail& trail, std::span<const TokenId> tokens, ThreadPool& pool);
  // Computes what is certain; false when there is no memory.
  bool CatchUp(std::span<Round> rounds, ThreadPool& pool);
  // Computes the last guess of each and takes the next one; false likewise.
  bool GuessOn(std::span<Round> rounds, ThreadPool& pool);
  bool Run(std::span<const cache::Append> appends, ThreadPool& pool);
  void TakeBest(std::span<Round> rounds);
  void Collect(ModelTrail& trail, std::span<const TokenId> tokens);

  std::unique_ptr<models::Model> model_;
  const int32_t vocab_;
  std::unique_ptr<cache::HybridCache> cache_;
  cache::SnapshotStore store_;
  models::Batch batch_;
  std::vector<float> logits_;  // [logit rows, vocabulary of the draft model]
  std::vector<Round> rounds_;
  std::vector<cache::Append> appends_;
};

std::unique_ptr<Trail> ModelDrafter::Begin(const Beginning& beginning) {
  auto trail = std::make_unique<ModelTrail>();
  trail->isolation = beginning.isolation;
  trail->sequence = cache_->NewSequence();
  auto restored = store_.Restore(beginning.isolation, beginning.tokens, trail->sequence);
  trail->lease = std::move(restored.lease);
  const auto boundaries = beginning.boundaries.last(std::min(beginning.boundaries.size(), kCapturesMax));
  for (const int32_t at : boundaries) {
    // Nothing is open on a new sequence; one that lies behind it already is refused, and need not be taken.
    (void)cache_->ScheduleCapture(trail->sequence, at);
  }
  return trail;
}

void ModelDrafter::Level(ModelTrail& trail, std::span<const TokenId> tokens, ThreadPool& pool) {
  if (!trail.open) return;
  const auto behind = tokens.subspan(std::min(static_cast<size_t>(trail.open->base()), tokens.size()));
  const auto right = std::ranges::mismatch(trail.open_tokens, behind).in1 - trail.open_tokens.begin();
  const auto replay = [&](size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t count) {
    model_->Replay(layer, slot, inputs, count, pool);
  };
  if (!trail.open->Commit(static_cast<int32_t>(right), replay)) trail.open->Drop();
  trail.open.reset();
  trail.open_tokens.clear();
}

bool ModelDrafter::Run(std::span<const cache::Append> appends, ThreadPool& pool) {
  auto step = cache_->Begin(appends);
  if (!step) return false;
  logits_.resize(batch_.logit_rows.size() * static_cast<size_t>(model_->vocab_size()));
  model_->Forward(batch_, **step, pool, models::Outputs(logits_));
  (*step)->Commit();
  return true;
}

void ModelDrafter::TakeBest(std::span<Round> rounds) {
  const auto width = static_cast<size_t>(model_->vocab_size());
  size_t row = 0;
  for (Round& round : rounds) {
    if (!round.guesses) continue;
    const auto logits = std::span(logits_).subspan(row++ * width, width).first(static_cast<size_t>(vocab_));
    round.wish->guesses->push_back(static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()));
  }
}

bool ModelDrafter::CatchUp(std::span<Round> rounds, ThreadPool& pool) {
  batch_.tokens.clear();
  batch_.row_begin.assign(1, 0);
  batch_.logit_rows.clear();
  appends_.clear();
  for (const Round& round : rounds) {
    const auto from = static_cast<size_t>(round.trail->sequence.offset());
    const auto tokens = round.wish->tokens.subspan(from, static_cast<size_t>(round.tokens));
    batch_.tokens.insert(batch_.tokens.end(), tokens.begin(), tokens.end());
    batch_.row_begin.push_back(static_cast<int32_t>(batch_.tokens.size()));
    if (round.guesses) batch_.logit_rows.push_back(batch_.row_begin.back() - 1);
    appends_.push_back({&round.trail->sequence, round.tokens});
  }
  if (!Run(appends_, pool)) return false;
  TakeBest(rounds);
  for (const Round& round : rounds) Collect(*round.trail, round.wish->tokens);
  return true;
}

bool ModelDrafter::GuessOn(std::span<Round> rounds, ThreadPool& pool) {
  batch_.tokens.clear();
  batch_.row_begin.assign(1, 0);
  batch_.logit_rows.clear();
  appends_.clear();
  for (Round& round : rounds) {
    const std::vector<TokenId>& guesses = *round.wish->guesses;
    round.guesses = round.guesses && std::ssize(guesses) < round.wish->depth;
    if (!round.guesses) continue;
    ModelTrail& trail = *round.trail;
    if (!trail.open) {
      auto open = cache_->Speculate(trail.sequence, cache::DraftMode::kLive);
      round.guesses = open.has_value();
      if (!open) continue;
      trail.open.emplace(std::move(*open));
    }
    batch_.tokens.push_back(guesses.back());
    batch_.row_begin.push_back(static_cast<int32_t>(batch_.tokens.size()));
    batch_.logit_rows.push_back(batch_.row_begin.back() - 1);
    appends_.push_back({&trail.sequence, 1});
  }
  if (appends_.empty() || !Run(appends_, pool)) return false;
  for (const Round& round : rounds) {
    if (round.guesses) round.trail->open_tokens.push_back(round.wish->guesses->back());
  }
  TakeBest(rounds);
  return true;
}

void ModelDrafter::Guess(std::span<const Wish> wishes, ThreadPool& pool) {
  rounds_.clear();
  for (const Wish& wish : wishes) {
    if (wish.guesses != nullptr) wish.guesses->clear();
    auto& trail = static_cast<ModelTrail&>(*wish.trail);
    Level(trail, wish.tokens, pool);
    const auto behind = static_cast<int32_t>(std::ssize(wish.tokens) - trail.sequence.offset());
    if (behind <= 0 || !trail.sequence.ready()) continue;
    const bool guesses = wish.depth > 0 && behind <= kCatchUpMax;
    rounds_.push_back({&wish, &trail, std::min(behind, kCatchUpMax), guesses});
  }
  if (rounds_.empty() || !CatchUp(rounds_, pool)) return;
  while (GuessOn(rounds_, pool)) {
  }
}

void ModelDrafter::Collect(ModelTrail& trail, std::span<const TokenId> tokens) {
  for (cache::Snapshot& snapshot : cache_->TakeCaptures(trail.sequence)) {
    if (snapshot.empty() || !snapshot.whole() || !snapshot.exact()) continue;
    const auto prefix = tokens.first(static_cast<size_t>(snapshot.to()));
    if (auto lease = store_.Insert(trail.isolation, prefix, std::move(snapshot)))
      trail.lease = std::move(*lease);
  }
}

void ModelDrafter::End(std::unique_ptr<Trail> trail, std::span<const TokenId> tokens) {
  auto& own = static_cast<ModelTrail&>(*trail);
  store_.AdvanceClock();
  // Of guesses nobody will tell any more whether they were right.
  own.open.reset();
  const auto offset = own.sequence.offset();
  if (offset == 0 || offset > std::ssize(tokens) || !own.sequence.ready()) return;
  Collect(own, tokens);
  auto last = cache_->Take(own.sequence);
  if (!last || last->empty() || !last->whole() || !last->exact()) return;
  (void)store_.Insert(own.isolation, tokens.first(static_cast<size_t>(offset)), std::move(*last));
}

}  // namespace

api::Result<std::unique_ptr<Drafter>> MakeModelDrafter(std::unique_ptr<models::Model> model, int32_t vocab,
                                                       size_t cache_bytes) {
  if (model->vocab_size() < vocab) {
    return api::Fail(api::ErrorCode::kBadModel, "the draft model has a smaller vocabulary than its target");
  }
  auto cache = cache::HybridCache::Create(model->cache_layout(), {.bytes = cache_bytes});
  if (!cache) return api::Fail(api::ErrorCode::kInternal, cache.error().message);
  return std::make_unique<ModelDrafter>(std::move(model), vocab, std::move(*cache), cache_bytes);
}

}  // namespace quire::runner::draft
