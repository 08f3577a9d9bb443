// What drafters share that have caches of their own: sequences level with the target's, a store of prefixes,
// and guessing in rounds, one token of every sequence at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/hybrid_cache.h"
#include "cache/snapshot_store.h"
#include "runner/draft/drafter.h"
#include "runner/models/model.h"

namespace quire::runner::draft {

// Guesses greedily. Engine thread only.
class CachedDrafter : public Drafter {
 public:
  bool follows() const override { return true; }
  std::unique_ptr<Trail> Begin(const Beginning& beginning) override;
  void Guess(std::span<const Wish> wishes, ThreadPool& pool) override;
  void End(std::unique_ptr<Trail> trail, std::span<const TokenId> tokens) override;

 protected:
  struct CachedTrail final : Trail {
    cache::Sequence sequence;
    cache::Lease lease;
    std::string isolation;
    // Of the target's tokens, the one that the first entry of the sequence belongs to. Only where it is 0 do
    // entries stand where others would look for them.
    int64_t first = 0;
    std::vector<TokenId> open_tokens;        // guesses that were computed behind what is certain
    std::optional<cache::Speculation> open;  // their transaction; closed before the sequence is gone
  };
  struct Options {
    int32_t vocab = 0;   // ids that the target knows
    int32_t logits = 0;  // of a row, at least `vocab`
    size_t cache_bytes = 0;
    // An entry holds a token and the state of the one before it: it is known by both, as the store's
    // look-ahead keys are, and what was computed from guessed states is not kept.
    bool pairs = false;
  };
  // Certain tokens that one sequence adds to the batch.
  struct Certain {
    int32_t rows = 0;   // 0: it is left out
    bool level = true;  // none is left for the next call, so it may be guessed on
  };

  CachedDrafter(std::unique_ptr<cache::HybridCache> cache, const Options& options);

  // Puts what is certain and not in the trail yet behind batch().tokens.
  virtual Certain AddCertain(const Wish& wish, CachedTrail& trail) = 0;
  // Before a guess that came from row `row` of the last logits goes into the batch.
  virtual void PrepareGuess(size_t row) = 0;
  // Computes the batch; `logits` [logit rows, Options::logits].
  virtual void Forward(const cache::StepView& step, ThreadPool& pool, std::span<float> logits) = 0;
  // See models::Model; never called where entries are pairs.
  virtual void Replay(size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens,
                      ThreadPool& pool) = 0;

  models::Batch& batch() { return batch_; }
  cache::HybridCache& cache() { return *cache_; }

 private:
  // One sequence of a call.
  struct Round {
    const Wish* wish = nullptr;
    CachedTrail* trail = nullptr;
    bool guesses = false;
  };

  bool ForkNeighbour(const Beginning& beginning, CachedTrail& trail);
  // Leaves wrong guesses behind: the trail is then at a prefix of `tokens`.
  void Level(CachedTrail& trail, std::span<const TokenId> tokens, ThreadPool& pool);
  void ClearBatch();
  // Ends the rows of a sequence in the batch.
  void AddRows(Round& round);
  // Computes the batch and takes the next guess of each round; false when there is no memory.
  bool Run(ThreadPool& pool);
  bool GuessOn(ThreadPool& pool);
  // Tokens that tell what the first `entries` entries are.
  size_t KeyTokens(cache::Position entries) const;
  void Collect(CachedTrail& trail, std::span<const TokenId> tokens);

  const Options options_;
  std::unique_ptr<cache::HybridCache> cache_;
  cache::SnapshotStore store_;
  models::Batch batch_;
  std::vector<float> logits_;  // [logit rows, Options::logits]
  std::vector<Round> rounds_;
  std::vector<cache::Append> appends_;
};

}  // namespace quire::runner::draft
