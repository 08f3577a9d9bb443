// Base of drafters with caches of their own: sequences in step with the target's, a prefix store, and
// drafting in rounds, one token of every sequence at a time.
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

// Drafts greedily. Engine thread only.
class CachedDrafter : public Drafter {
 public:
  bool follows() const override { return true; }
  std::unique_ptr<DraftState> CreateState(const DraftContext& context) override;
  void ProposeDrafts(std::span<const DraftRequest> requests, ThreadPool& pool) override;
  void End(std::unique_ptr<DraftState> state, std::span<const TokenId> tokens) override;
  void ReleaseFree() override { cache_->ReleaseFree(); }

 protected:
  struct CachedDraftState final : DraftState {
    cache::Sequence sequence;
    cache::Lease lease;
    std::string isolation;
    std::string owner;
    // The index of the target's token that the first entry of the sequence belongs to. Only where it is 0 do
    // entries stand where others would look for them.
    int64_t first = 0;
    std::vector<TokenId> open_tokens;        // draft tokens computed behind the confirmed ones
    std::optional<cache::Speculation> open;  // their transaction; closed before the sequence is destroyed
  };
  struct Options {
    int32_t vocab = 0;   // ids that the target knows
    int32_t logits = 0;  // of a row, at least `vocab`
    size_t cache_bytes = 0;
    // An entry holds a token and the state of the one before it: it is known by both, as the store's
    // look-ahead keys are, and what was computed from draft states is not kept.
    bool pairs = false;
  };
  // Confirmed tokens that one sequence adds to the batch.
  struct Confirmed {
    int32_t rows = 0;       // 0: the sequence is left out
    bool caught_up = true;  // none is left for the next call, so drafting may start
  };

  CachedDrafter(std::unique_ptr<cache::HybridCache> cache, const Options& options);

  // Appends to batch().tokens the confirmed tokens that are not in the state yet.
  virtual Confirmed AddConfirmed(const DraftRequest& request, CachedDraftState& state) = 0;
  // Called before a draft token that came from row `row` of the last logits is added to the batch.
  virtual void PrepareDraftToken(size_t row) = 0;
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
    const DraftRequest* request = nullptr;
    CachedDraftState* state = nullptr;
    bool drafting = false;
  };

  bool ForkNeighbor(const DraftContext& context, CachedDraftState& state);
  // Rolls back rejected drafts: the state is then at a prefix of `tokens`.
  void RollBack(CachedDraftState& state, std::span<const TokenId> tokens, ThreadPool& pool);
  void ClearBatch();
  // Ends the rows of a sequence in the batch.
  void AddRows(Round& round);
  // Computes the batch and appends the next draft token of each round; false without memory.
  bool Run(ThreadPool& pool);
  bool ExtendDrafts(ThreadPool& pool);
  // Tokens that identify the first `entries` entries.
  size_t KeyTokens(cache::Position entries) const;
  void Collect(CachedDraftState& state, std::span<const TokenId> tokens);

  const Options options_;
  std::unique_ptr<cache::HybridCache> cache_;
  cache::SnapshotStore store_;
  models::Batch batch_;
  std::vector<float> logits_;  // [logit rows, Options::logits]
  std::vector<Round> rounds_;
  std::vector<cache::Append> appends_;
};

}  // namespace quire::runner::draft
