// The requests that the scheduler knows: whose each is, what it has had so far, and which place it takes.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/base/ids.h"
#include "scheduler/keep_alive_claims.h"
#include "scheduler/plan.h"
#include "scheduler/queue_places.h"

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
  fair::PartyId party;
  std::string member;  // of the party; empty: the party is one
  AnswerLength length = AnswerLength::kAny;
  std::optional<KeepAliveClaim> keep_alive;
  bool admitted = false;
  bool started = false;
  std::optional<Time> give_up_at = {};  // unless started
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
  Owner owner() const { return {party, member}; }
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
  explicit RequestQueue(const SchedulerOptions& options)
      : places_(options.queue_max, options.model_queue_max), timeout_(options.queue_timeout) {}

  const QueuePlaces& places() const { return places_; }
  api::RequestId newest() const { return newest_; }  // of all so far
  auto& requests() { return requests_; }
  const auto& requests() const { return requests_; }

  // REQUIRES: places() has room for it.
  void Add(api::RequestId id, QueuedRequest request, Time now);
  // Null: there is none.
  QueuedRequest* Find(api::RequestId id);
  QueuedRequest& At(api::RequestId id) { return requests_.find(id)->second; }
  const QueuedRequest& At(api::RequestId id) const { return requests_.find(id)->second; }
  // It no longer takes a place.
  void Start(QueuedRequest& request);
  void Erase(api::RequestId id);
  // Those that have waited too long, by id.
  void Expire(Time now, Plan& plan) const;
  KeepAliveClaims::Parties PartiesOf(const Waiting& waiting) const;
  // Empty if its places are those of its requests.
  std::string CheckInvariants() const;

 private:
  void FreePlaceOf(const QueuedRequest& request) {
    places_.Remove(request.key, request.party.name(), request.length);
  }

  std::unordered_map<api::RequestId, QueuedRequest> requests_;
  QueuePlaces places_;  // of requests that no runner has started
  const KeepAlive timeout_;
  api::RequestId newest_{};
};

}  // namespace quire::scheduler
