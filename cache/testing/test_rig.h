// Test only. A cache with its sequences beside the plain token lists they must agree with; every operation is
// followed by a check of everything.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/hybrid_cache.h"
#include "cache/testing/fake_model.h"

namespace quire::cache {

class Rig {
 public:
  using Batch = std::vector<std::pair<size_t, int32_t>>;  // sequence, new tokens

  Rig(Layout layout, Capacity capacity);

  HybridCache& cache() { return *cache_; }
  Sequence& sequence(size_t i) { return entries_[i].sequence; }
  const TokenList& tokens(size_t i) const { return entries_[i].tokens; }

  size_t New();
  // The sequence was set to these tokens by other means.
  void SetTokens(size_t i, TokenList tokens) { entries_[i].tokens = std::move(tokens); }
  size_t Fork(size_t source, Position at);
  void Drop(size_t i) { entries_[i].sequence = Sequence(); }
  // A sequence restored from `snapshot`, taken of a sequence whose tokens began with `tokens`.
  size_t Restore(const Snapshot& snapshot, const TokenList& tokens, Position max_position = INT64_MAX);
  void Commit(size_t i, Speculation& draft, int32_t keep);
  void RemoveRange(size_t i, Position begin, Position end);
  void Truncate(size_t i, Position at);
  // Appends fresh random tokens, runs the fake model and checks what it saw.
  void Append(const Batch& batch);
  // The tokens beyond `at` were a draft that is gone.
  void DiscardDraft(size_t i, Position at) { entries_[i].tokens.resize(static_cast<size_t>(at)); }
  void CancelledAppend(const Batch& batch);
  Error AppendFails(const Batch& batch);
  Demand Need(const Batch& batch);
  // A token list the test knows, to be appended next.
  void AppendTokens(size_t i, const TokenList& tokens);
  // Every sequence shows exactly its tokens; every invariant holds.
  void CheckAll();

 private:
  struct Entry {
    Sequence sequence;
    TokenList tokens;
  };

  std::vector<quire::cache::Append> Appends(const Batch& batch);
  void Run(Step& step, const Batch& batch, std::vector<TokenList> tokens, bool commit);

  Layout layout_;
  std::unique_ptr<HybridCache> cache_;
  std::vector<Entry> entries_;
  TokenId next_token_ = 1;
};

}  // namespace quire::cache
