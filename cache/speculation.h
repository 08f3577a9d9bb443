// A transaction of draft tokens on one sequence, over all its layer kinds.
//
//   auto draft = cache.Speculate(a);                      // begins at s = a.offset()
//   ... Begin/Commit steps that append m draft tokens to draft->sequence() ...
//   draft->Commit(n, replay);                            // 0 <= n <= m: a now ends at s + n
//
// Until then forks, snapshots and views of the sequence see it as it was at s. KV and windows end at s + n
// with the contents they would have without a draft. Recurrent state: kept when n = m, the state at s when
// n = 0, otherwise the state at s with the recorded inputs of the first n tokens replayed. The token sampled
// behind the accepted ones is not part of it: nothing of that token has been computed, and it is the first of
// the next step. Destroyed without Commit, it drops the draft. Costs one state slot more than the sequence
// had, while open. Engine thread only. Not destroyed while a step of the draft is open.
//
// An isolated draft (SpeculateIsolated) is written to a fork and can only be dropped: it shows what a draft
// would give, and the sequence that it began at knows nothing of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "cache/sequence.h"
#include "cache/types.h"

namespace quire::cache {

// Applies `tokens` recorded inputs, [tokens][record_bytes], to one recurrent layer of `slot` (add ConvOffset
// and DeltaOffset), with the very arithmetic of a step. Called in token order; every layer is called for
// every run of tokens. For a short convolution the inputs are the columns it pushes into its tail; for a
// delta rule whatever a token contributes to its update: key, value and the two gates.
using ReplayInputs = std::function<void(size_t recurrent_layer, std::byte* slot,
                                        std::span<const std::byte> inputs, int32_t tokens)>;

class Speculation {
 public:
  Speculation(Speculation&& other) noexcept;
  Speculation& operator=(Speculation&&) = delete;
  ~Speculation();

  // The sequence that draft tokens are appended to: the one given to Speculate, which stays where it is, or
  // the fork.
  Sequence& sequence() { return isolated_ ? isolated_ : *live_; }
  Position base() const { return base_; }
  int32_t drafted() const {
    const Position end = isolated_ ? isolated_.offset() : live_ != nullptr ? live_->offset() : base_;
    return static_cast<int32_t>(end - base_);
  }

  // Keeps the first `keep` draft tokens and closes the transaction. On error it is still open.
  // `replay` may be null without recurrent layers. kInvalid: keep outside [0, drafted()], a step is open, it
  // is closed, or there is no replay where one is needed. kUnsupported: the draft is isolated. kOutOfSlots:
  // only where a canceled step has lost the draft's slot while the one at the base is shared. kOutOfMemory:
  // not where keep is 0.
  Result<void> Commit(int32_t keep, const ReplayInputs& replay);
  void Drop();  // as the destructor

 private:
  friend class HybridCache;
  Speculation(Sequence* live, Position base) : live_(live), base_(base) {}
  explicit Speculation(Sequence fork) : isolated_(std::move(fork)), base_(isolated_.offset()) {}

  Sequence* live_ = nullptr;  // null once closed, and where the draft is isolated
  Sequence isolated_;         // refers to nothing unless the draft is isolated and open
  Position base_;
};

}  // namespace quire::cache
