// How long a loaded model stays. Every party that uses it has a claim, and the longest one counts: no client
// ends another one's stay, and none keeps a model loaded for itself while another waits for the room.
//
// Nothing is shared out here: a claim says for how long, and costs nothing while nobody waits.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "api/base/fair/party.h"

namespace quire::scheduler {

// How long a model stays loaded after its last request. Negative = never expires, zero = unloaded at once.
using KeepAlive = std::chrono::nanoseconds;

// What a request says of its party's claim.
struct KeepAliveClaim {
  // Implicit: most callers have a time alone.
  template <class Rep, class Period>
  // NOLINTNEXTLINE(*-explicit-*)
  constexpr KeepAliveClaim(std::chrono::duration<Rep, Period> time, bool admin = false)
      : keep_alive(time), by_admin(admin) {}

  KeepAlive keep_alive;
  bool by_admin;  // of a key with the role admin: a negative time then pins the model for everybody
};

// The claims on one model. Owned by the scheduler; I/O thread only.
class KeepAliveClaims {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // One whose weight changed is the same.
  struct ByName {
    bool operator()(const fair::PartyId& one, const fair::PartyId& other) const {
      return one.name() < other.name();
    }
  };
  using Parties = std::set<fair::PartyId, ByName>;
  static constexpr Time kNever = Time::max();
  // If there are more parties, the one whose claim ends first has none, so that a decision costs little.
  static constexpr size_t kPartiesMax = 256;

  // A request of the party runs. What the last one said holds, at first `by_default`.
  void Start(const fair::PartyId& party, const std::optional<KeepAliveClaim>& said, KeepAlive by_default);
  // One of them has ended.
  void End(const fair::PartyId& party, Time now);
  // All have: their runner is gone.
  void EndAll(Time now);
  // The party needs the model no longer than its running requests do.
  void Release(const fair::PartyId& party);

  // When the last claim ends if nothing else is requested; nothing: there are none.
  std::optional<Time> ExpiresAt(Time now) const;
  bool HasOther(const fair::PartyId& party, Time now) const;  // a claim, of another party
  bool IsPinned() const;
  // The model stays although these parties wait for room: an admin has pinned it, or the only one of them
  // has, or nobody waits.
  bool IsPinnedAgainst(const Parties& waiting) const;
  bool IsPinnedByAdmin() const;
  int32_t running() const;  // requests of all parties

 private:
  struct Claim {
    KeepAlive keep_alive{};
    bool pins = false;  // a request said a negative time, not the default
    bool by_admin = false;
    int32_t running = 0;
    Time idle_since{};
  };
  static Time EndOf(const Claim& claim, Time now);
  void DropFirstToEnd();

  std::map<fair::PartyId, Claim, ByName> claims_;
};

}  // namespace quire::scheduler
