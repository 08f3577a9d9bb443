#include "runner/draft/layer_drafter.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/hybrid_cache.h"

namespace quire::runner::draft {
namespace {

struct LayerTrail final : Trail {
  cache::Sequence sequence;  // of the tokens [end - sequence.offset() + 1, end + 1), each behind a state
  int64_t end = 0;           // tokens of the target's caches whose states it has read
  std::optional<cache::Speculation> open;  // guesses, dropped before a call returns
};

class LayerDrafter final : public Drafter {
 public:
  LayerDrafter(std::unique_ptr<models::PredictionLayer> layer, int32_t vocab, int32_t hidden_size,
               std::unique_ptr<cache::HybridCache> cache)
      : layer_(std::move(layer)),
        vocab_(static_cast<size_t>(vocab)),
        width_(static_cast<size_t>(hidden_size)),
        cache_(std::move(cache)) {}

  const std::string& architecture() const override { return name_; }
  int64_t weight_bytes() const override { return layer_->weight_bytes(); }
  HiddenWanted hidden_wanted() const override { return HiddenWanted::kAll; }
  bool follows() const override { return true; }

  std::unique_ptr<Trail> Begin(const Beginning&) override {
    auto trail = std::make_unique<LayerTrail>();
    trail->sequence = cache_->NewSequence();
    return trail;
  }
  void End(std::unique_ptr<Trail>, std::span<const TokenId>) override {}
  void Guess(std::span<const Wish> wishes, ThreadPool& pool) override;

 private:
  struct Round {
    const Wish* wish = nullptr;
    LayerTrail* trail = nullptr;
    bool guesses = false;
  };

  void Follow(const Wish& wish);
  // Computes the batch; false when there is no memory. Takes a guess of every round that still does.
  bool Run(ThreadPool& pool);
  bool GuessOn(ThreadPool& pool);
  void Clear();

  std::unique_ptr<models::PredictionLayer> layer_;
  const size_t vocab_, width_;
  std::unique_ptr<cache::HybridCache> cache_;
  const std::string name_ = "mtp";
  std::vector<Round> rounds_;
  std::vector<cache::Append> appends_;
  models::Batch batch_;
  std::vector<float> before_;  // [rows, hidden size]
  std::vector<float> logits_;  // [logit rows, vocab]
  std::vector<float> own_;     // [logit rows, hidden size]: the layer's own states
};

void LayerDrafter::Clear() {
  appends_.clear();
  batch_.tokens.clear();
  batch_.row_begin.assign(1, 0);
  batch_.logit_rows.clear();
  before_.clear();
}

// Puts what is new of a sequence into the batch: each token in the target's caches tells of the one behind
// it.
void LayerDrafter::Follow(const Wish& wish) {
  auto& trail = static_cast<LayerTrail&>(*wish.trail);
  const auto states = static_cast<int64_t>(wish.hidden.size() / width_);
  const int64_t end = std::ssize(wish.tokens) - 1;
  if (states == 0 || states > end) return;
  // A state is missing: what is known begins anew.
  if (trail.end != end - states) trail.sequence = cache_->NewSequence();
  trail.end = end;
  const auto tokens = wish.tokens.last(static_cast<size_t>(states));
  batch_.tokens.insert(batch_.tokens.end(), tokens.begin(), tokens.end());
  batch_.row_begin.push_back(static_cast<int32_t>(batch_.tokens.size()));
  before_.insert(before_.end(), wish.hidden.begin(), wish.hidden.end());
  if (wish.depth > 0) batch_.logit_rows.push_back(batch_.row_begin.back() - 1);
  appends_.push_back({&trail.sequence, static_cast<int32_t>(states)});
  rounds_.push_back({&wish, &trail, wish.depth > 0});
}

bool LayerDrafter::Run(ThreadPool& pool) {
  auto step = cache_->Begin(appends_);
  if (!step) return false;
  logits_.resize(batch_.logit_rows.size() * vocab_);
  own_.resize(batch_.logit_rows.size() * width_);
  batch_.hidden_rows = batch_.logit_rows;
  layer_->Forward(batch_, before_, **step, pool, models::Outputs(logits_, own_));
  (*step)->Commit();
  size_t row = 0;
  for (const Round& round : rounds_) {
    if (!round.guesses) continue;
    const auto logits = std::span(logits_).subspan(row++ * vocab_, vocab_);
    round.wish->guesses->push_back(static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()));
  }
  return true;
}

bool LayerDrafter::GuessOn(ThreadPool& pool) {
  Clear();
  size_t row = 0;
  for (Round& round : rounds_) {
    if (!round.guesses) continue;
    const auto state = std::span(own_).subspan(row++ * width_, width_);
    round.guesses = std::ssize(*round.wish->guesses) < round.wish->depth;
    if (!round.guesses) continue;
    if (!round.trail->open) {
      auto open = cache_->Speculate(round.trail->sequence, cache::DraftMode::kLive);
      round.guesses = open.has_value();
      if (!open) continue;
      round.trail->open.emplace(*std::move(open));
    }
    batch_.tokens.push_back(round.wish->guesses->back());
    batch_.row_begin.push_back(static_cast<int32_t>(batch_.tokens.size()));
    batch_.logit_rows.push_back(batch_.row_begin.back() - 1);
    before_.insert(before_.end(), state.begin(), state.end());
    appends_.push_back({&round.trail->sequence, 1});
  }
  return !appends_.empty() && Run(pool);
}

void LayerDrafter::Guess(std::span<const Wish> wishes, ThreadPool& pool) {
  rounds_.clear();
  Clear();
  for (const Wish& wish : wishes) {
    if (wish.guesses != nullptr) wish.guesses->clear();
    Follow(wish);
  }
  if (appends_.empty()) return;
  if (!Run(pool)) {
    for (const Round& round : rounds_) round.trail->sequence = cache_->NewSequence();
    return;
  }
  while (GuessOn(pool)) {
  }
  for (const Round& round : rounds_) round.trail->open.reset();
}

}  // namespace

api::Result<std::unique_ptr<Drafter>> MakeLayerDrafter(std::unique_ptr<models::PredictionLayer> layer,
                                                       int32_t vocab, int32_t hidden_size,
                                                       size_t cache_bytes) {
  auto cache = cache::HybridCache::Create(layer->cache_layout(), {.bytes = cache_bytes});
  if (!cache) return api::Fail(api::ErrorCode::kInternal, cache.error().message);
  return std::make_unique<LayerDrafter>(std::move(layer), vocab, hidden_size, std::move(*cache));
}

}  // namespace quire::runner::draft
