// A transaction of draft tokens on one sequence, over all its layer kinds.
//
//   auto draft = cache.Speculate(a, DraftMode::kLive);   // begins at s = a.offset()
//   ... Begin/Commit steps that append m draft tokens to draft->sequence() ...
//   draft->Commit(n, replay);                            // 0 <= n <= m: a now ends at s + n
//
// Until then forks, snapshots and views of the sequence see it as it was at s. KV and windows end at s + n
// with the contents they would have without a draft. Recurrent state: kept when n = m, the state at s when n
// = 0, otherwise the state at s with the recorded inputs of the first n tokens replayed. Destroyed without
// Commit, it drops the draft. Costs one state slot more than the sequence had, while open. Engine thread
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "cache/sequence.h"
#include "cache/types.h"

namespace quire::cache {

enum class DraftMode : uint8_t {
  kLive,      // draft tokens are written behind the sequence's own, to be committed
  kIsolated,  // they are written to a fork that never touches the sequence and is always dropped
};

// Applies `tokens` recorded inputs, [tokens][record_bytes], to one recurrent layer of `slot`.
using ReplayInputs = std::function<void(size_t recurrent_layer, std::byte* slot,
                                        std::span<const std::byte> inputs, int32_t tokens)>;

class Speculation {
 public:
  Speculation(Speculation&& other) noexcept;
  Speculation& operator=(Speculation&&) = delete;
  ~Speculation();

  // What draft tokens are appended to. In live mode the sequence given to Speculate, which stays where it is.
  Sequence& sequence() { return isolated_ ? isolated_ : *live_; }
  Position base() const { return base_; }
  int32_t drafted() const { return static_cast<int32_t>(sequence_offset() - base_); }

  // Keeps the first `keep` draft tokens and closes the transaction. On error it is still open.
  // kInvalid: keep outside [0, drafted()], a step is open, or it is closed. kUnsupported: isolated mode.
  // kOutOfSlots: only where a cancelled step has lost the draft's slot while the one at the base is shared.
  Result<void> Commit(int32_t keep, const ReplayInputs& replay);
  void Drop();  // as the destructor

 private:
  friend class HybridCache;
  Speculation(Sequence* live, Sequence isolated, Position base);
  Position sequence_offset() const;

  Sequence* live_;  // null once closed, and in isolated mode
  Sequence isolated_;
  Position base_;
};

}  // namespace quire::cache
