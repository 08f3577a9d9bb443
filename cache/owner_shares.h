// For whom a SnapshotStore keeps its nodes, and whose are spared while others can be evicted.
//
// An owner is whom a node was stored for: a name that says nothing to this folder. It owns the bytes of its
// nodes, and of what runs for it. A node that its owner used lately is spared unless that is the owner with
// most bytes: who fills the cache evicts nodes of its own, and those of owners who are gone. If nothing is
// left of the largest, owners with half as much are not spared either, and so on. An owner alone is never
// held back. A node that others use, too, stays its first owner's until that has not used it lately. The
// bytes of a node are those of its own range, shared or not. Engine thread only.
//
// No fair::Quota: which bytes are given back depends on what they are worth, not only on whose they are.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

#include "cache/types.h"

namespace quire::cache {

class OwnerShares {
 public:
  using Clock = std::chrono::steady_clock;

  // Lately: `spared_for` ago at most.
  explicit OwnerShares(std::chrono::nanoseconds spared_for) : spared_for_(spared_for) {}
  OwnerShares(const OwnerShares&) = delete;
  OwnerShares& operator=(const OwnerShares&) = delete;

  struct Share {
    OwnerShares* shares = nullptr;
    std::string name;
    size_t bytes = 0;  // of all its claims
    size_t held = 0;   // of these: of what runs
    size_t claims = 0;
    Clock::time_point used = {};
  };

  // What a node, or something that runs, is to its owner. Move-only; a default one has none, and is not
  // spared.
  class Claim {
   public:
    Claim() = default;
    Claim(Claim&& other) noexcept;
    Claim& operator=(Claim&& other) noexcept;
    ~Claim();

    void SetBytes(size_t bytes);
    size_t bytes() const { return bytes_; }
    const Share* owner() const { return owner_; }
    // One more of the same owner, as long unused, without bytes. Needs no memory.
    Claim Copy() const;

   private:
    friend class OwnerShares;
    Share* owner_ = nullptr;
    size_t bytes_ = 0;
    bool runs_ = false;
    Clock::time_point used_;
  };

  // A new claim of the owner, without bytes. Throws std::bad_alloc.
  Claim Enter(std::string_view owner);
  // The same for something that runs.
  Claim EnterRunning(std::string_view owner);
  // Somebody uses what is claimed. Without memory for a new owner the old one keeps it.
  void Use(Claim& claim, std::string_view owner);

  // Whose nodes are spared.
  struct Spared {
    Clock::time_point since;  // used
    size_t bytes_max = 0;     // of the owner; 0: nobody's
  };
  // All that were used lately but the largest owner's. Linear in the owners.
  Spared AllButLargest() const;
  static bool IsSpared(const Claim& claim, const Spared& spared) {
    return claim.owner_ != nullptr && claim.used_ >= spared.since && claim.owner_->bytes <= spared.bytes_max;
  }

  // Bytes of nodes that were used lately, of each owner at most its part, in which what runs for it is too.
  // The parts of all owners that used something lately are equal.
  struct Due {
    Clock::time_point since;
    size_t part = 0;
    size_t total = 0;
  };
  Due BytesDue(size_t budget_bytes) const;  // linear in the owners
  size_t BytesDueToOthers(const Due& due, std::string_view owner) const;

  size_t owners() const { return owners_.size(); }
  // For checks.
  template <class Visit>
  void ForEachOwner(const Visit& visit) const {
    for (const auto& [name, owner] : owners_) visit(owner);
  }

 private:
  static void Exit(Share& owner);
  // Whether it used something lately, or runs.
  static bool IsHere(const Share& owner, Clock::time_point since) {
    return owner.held > 0 || owner.used >= since;
  }
  static size_t DueTo(const Share& owner, const Due& due);

  const std::chrono::nanoseconds spared_for_;
  std::unordered_map<std::string, Share, TransparentHash, std::equal_to<>> owners_;  // each has a claim
};

}  // namespace quire::cache
