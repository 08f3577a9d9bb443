// How much parties may hold at the same time of what there is only so much of: bytes, or places.
//
// A party's share is its part by weight of what parties that hold something, or ask for it, have together.
// Who has less may have more while others leave it. A refusal names the party that is furthest above its
// share: its holder may preempt that one and ask again. Where nothing can be taken back, parties leave room
// for the next one from the beginning (QuotaLimits::leaves_room).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "api/base/fair/party.h"

namespace quire::fair {

struct QuotaLimits {
  uint64_t total = UINT64_MAX;
  uint64_t small = 0;           // a lease of at most as much counts for the total only
  uint64_t large = UINT64_MAX;  // all larger leases together
  uint64_t party = UINT64_MAX;  // those of one party
  // The larger leases of a party beside others have at most twice its weight of what is left, so that parties
  // never have all of it, however many they are. (Dynamic thresholds: Choudhury and Hahne, 1998.)
  bool leaves_room = false;
};

// Any thread.
class Quota {
 public:
  enum class Bound : uint8_t { kTotal, kLarge, kParty };
  struct Refusal {
    Bound bound = Bound::kTotal;
    // Has more than its share, and more of it than the one that asked would have. Nobody: there is none.
    PartyId over = {};
  };

 private:
  struct State;
  struct Amount {
    uint64_t all = 0;
    uint64_t large = 0;  // 0 where it is small
  };

 public:
  // What one holder has. Movable; may outlive the quota. One thread at a time.
  class Lease {
   public:
    Lease() = default;  // of no quota, which is for assignment
    Lease(Quota& quota, PartyId party) : state_(quota.state_), party_(std::move(party)) {}
    Lease(Lease&& other) noexcept
        : state_(std::move(other.state_)),
          party_(std::move(other.party_)),
          holds_(std::exchange(other.holds_, {})) {}
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { ShrinkTo(0); }

    // A refusal: it is as it was.
    std::optional<Refusal> GrowTo(uint64_t amount);
    // Whatever the limits: of what nobody knows before it is there.
    void SetTo(uint64_t amount);
    std::optional<Refusal> RefusalFor(uint64_t amount) const;
    void ShrinkTo(uint64_t amount);
    uint64_t amount() const { return holds_.all; }
    const PartyId& party() const { return party_; }

   private:
    std::shared_ptr<State> state_;
    PartyId party_;
    Amount holds_;
  };

  explicit Quota(const QuotaLimits& limits = {});
  // From the next growth on.
  void SetLimits(const QuotaLimits& limits);
  uint64_t held() const;
  uint64_t HoldingOf(const PartyId& party) const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace quire::fair
