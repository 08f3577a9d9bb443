// Restorable state for the token range [from, to): the full-attention pages of that range, the window pages
// that end at `to` and the state slot at `to`.
//
// Holding one costs references, not copies. It can be restored alone: it also refers to the full-attention
// pages before `from`, which it shares with the sequence or snapshot it came from; only [from, to) counts in
// its size. Move-only; destruction gives everything back. Engine thread only; outlived by its HybridCache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "cache/types.h"

namespace quire::cache {

class HybridState;

class Snapshot {
 public:
  Snapshot();  // empty: [0, 0), holds nothing
  Snapshot(Snapshot&& other) noexcept;
  Snapshot& operator=(Snapshot&& other) noexcept;
  ~Snapshot();

  Position from() const { return from_; }
  Position to() const;
  bool empty() const { return held_ == nullptr; }  // exactly if from() == to()

  // Every layer can be restored at to().
  bool whole() const;
  // The KV is what computing the tokens in place gives; false after a range was removed before to().
  bool exact() const;
  // Holds window pages or a state slot: what only this offset has.
  bool has_state() const { return has_slot() || has_window(); }
  bool has_slot() const;
  bool has_window() const;
  // The full-attention pages before from() are the same ones that `parent` has there. For invariant checks.
  bool SharesFront(const Snapshot& parent) const;
  // Ends inside a page of full-attention group `group` that is another than `next` has there. REQUIRES:
  // `next` goes on where this ends.
  bool EndsInOwnPage(size_t group, const Snapshot& next) const;
  // The deepest offset in (0, max_position] that all layers can be restored at, or 0. Recurrent state: to()
  // only. Windows: to(), or earlier while the window has not slid. Full attention: any.
  Position DeepestRestorable(Position max_position) const;
  // Bytes of the pages that [from, to) touches, of the window pages and of the slot.
  size_t bytes() const;

  // Cuts off and returns [from, at); this becomes [at, to). Full-attention pages go where they belong (one in
  // which `at` lies is in both); recurrent state stays here, windows too unless they have not slid since
  // `at`. Throws std::bad_alloc, changing nothing. REQUIRES: from < at < to.
  Snapshot SplitFront(Position at);
  // The reverse: this becomes [parent.from, to) and keeps its own state. REQUIRES: parent.to == from, and
  // both were taken of the same tokens.
  void MergeFront(Snapshot parent);
  // Takes over windows and slot of a snapshot of the same tokens that ends at the same offset, where they
  // lack here.
  void AdoptState(const Snapshot& other);
  // Takes the full-attention pages before from() from `parent`, so that equal prefixes are held once.
  // Throws std::bad_alloc. REQUIRES: parent.to >= from, and both were taken of the same tokens.
  void ShareFront(const Snapshot& parent, Position from);

  // One part of a snapshot's bytes, for tiers that store it elsewhere.
  struct Part {
    enum class Kind : uint8_t { kPage, kSlot } kind;
    size_t group = 0;    // of a page
    Position first = 0;  // of a page: position of its first row
    std::span<std::byte> bytes;
  };
  // The parts that bytes() counts, in a fixed order. Read-only.
  void ForEachPart(const std::function<void(const Part&)>& visit) const;
  // The page of positions [page * page_tokens, ...) of a group, also before from(); the state slot.
  // Read-only; empty: it has none.
  std::span<const std::byte> Page(size_t group, int64_t page) const;
  std::span<const std::byte> Slot() const;

 private:
  friend class HybridCache;
  friend class StoreAccounting;
  friend struct SequenceState;
  Snapshot(std::unique_ptr<HybridState> held, Position from);

  std::unique_ptr<HybridState> held_;
  Position from_ = 0;
};

}  // namespace quire::cache
