// The requests that the scheduler knows: whose each is, what it has had so far, and which place it takes.
//
// Places are of requests that no runner has started: of all models together, and of each. Parties share them
// by weight: while all are taken, the newest of the party that is furthest above its share makes room for one
// of a party below (fair::Quota), rather one of an exchange of which no answer has begun: that would be cut
// off. Texts of an exchange that are to be embedded are asked for again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/base/fair/quota.h"
#include "api/base/ids.h"
#include "api/base/request.h"
#include "scheduler/keep_alive_claims.h"
#include "scheduler/plan.h"

namespace quire::scheduler {

// What the deaths of its runners say of a request (quarantine.h).
struct Suspicion {
  bool quarantined = false;        // was in a runner that died; no progress since
  int32_t probation_failures = 0;  // runners that were killed, perhaps because of it
  int32_t unexplained_deaths = 0;  // runners that died while it was one of several candidates
  bool tried_first = false;        // the last to come before such a death
};

struct QueuedRequest {
  std::string key;
  api::Client client;
  std::optional<KeepAliveClaim> keep_alive;
  bool admitted = false;
  bool started = false;
  std::optional<Time> give_up_at = {};  // unless started
  struct Place {
    fair::Quota::Lease of_all = {}, of_model = {};
    bool taken() const { return of_all.amount() > 0; }
  };
  Place place = {};  // not taken: a runner has started it, or another request has its place
  Suspicion suspicion = {};
  Time admitted_at{};                      // last
  std::optional<Time> sent_at = {};        // since it was admitted
  std::optional<Time> progressed_at = {};  // since it was admitted: the first time
  KeepAlive ran{};                         // in runners before
  // Turns in which what the runners before had computed took more than half of the time.
  int32_t short_turns_lost = 0;  // since the last whole one
  int32_t whole_turns_lost = 0;

  // A party, or a member of it. Points into the request.
  using Owner = std::pair<fair::PartyId, std::string_view>;
  Owner owner() const { return {client.party, client.has_key ? std::string_view() : client.exchange}; }
  bool RunsIn(const std::string& model) const { return admitted && key == model; }
  bool WasSentBy(Time when) const { return sent_at && *sent_at <= when; }
  void Admit(Time now) {
    admitted = true;
    admitted_at = now;
    sent_at.reset();
    progressed_at.reset();
  }
  void EndRun(Time now) {
    admitted = false;
    ran += now - admitted_at;
  }
};

// Requests that wait for a model, oldest first.
using Waiting = std::deque<api::RequestId>;

// Owned by the scheduler; I/O thread only.
class RequestQueue {
 public:
  explicit RequestQueue(const SchedulerOptions& options);

  int32_t waiting() const { return static_cast<int32_t>(places_.held()); }  // that have a place
  api::RequestId newest() const { return newest_; }                         // of all so far
  auto& requests() { return requests_; }
  const auto& requests() const { return requests_; }

  // Whose place another request of the party would take; kNoRequest: a free one. Nothing: there is none.
  std::optional<api::RequestId> PlaceFor(const std::string& key, const fair::PartyId& party);
  // False: there is no place for it. Who loses its place for it is in the next plan.
  bool Add(api::RequestId id, QueuedRequest request, Time now);
  // Null: there is none.
  QueuedRequest* Find(api::RequestId id);
  QueuedRequest& At(api::RequestId id) { return requests_.find(id)->second; }
  const QueuedRequest& At(api::RequestId id) const { return requests_.find(id)->second; }
  // It no longer takes a place. `answers`: others of its exchange follow it.
  void Start(QueuedRequest& request, bool answers);
  void Erase(api::RequestId id);
  // Those that have waited too long, by id, and those that have lost their places.
  void Expire(Time now, Plan& plan);
  KeepAliveClaims::Parties PartiesOf(const Waiting& waiting) const;
  // Empty if its places are those of its requests.
  std::string CheckInvariants() const;

 private:
  struct Exchange {
    size_t requests = 0;
    bool begun = false;  // an answer of it
  };
  api::RequestId NewestOf(const fair::PartyId& party, const std::string* model) const;
  void FreePlaceOf(QueuedRequest& request);

  std::unordered_map<api::RequestId, QueuedRequest> requests_;
  std::unordered_map<std::string, Exchange> exchanges_;  // each has requests
  const fair::QuotaLimits limits_, limits_of_model_;
  fair::Quota places_;
  std::map<std::string, fair::Quota> places_of_models_;  // of those that have some
  std::vector<api::RequestId> displaced_;                // since the last plan
  const KeepAlive timeout_;
  api::RequestId newest_{};
};

}  // namespace quire::scheduler
