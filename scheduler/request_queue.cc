#include "scheduler/request_queue.h"

#include <algorithm>

namespace quire::scheduler {

void RequestQueue::Add(api::RequestId id, QueuedRequest request, Time now) {
  if (timeout_ > KeepAlive::zero() && timeout_ < Time::max() - now) request.give_up_at = now + timeout_;
  newest_ = std::max(newest_, id);
  places_.Add(request.key, request.party.name(), request.length);
  requests_.emplace(id, std::move(request));
}

QueuedRequest* RequestQueue::Find(api::RequestId id) {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : &found->second;
}

void RequestQueue::Start(QueuedRequest& request) {
  if (request.started) return;
  request.started = true;
  request.give_up_at.reset();
  FreePlaceOf(request);
}

void RequestQueue::Erase(api::RequestId id) {
  const auto found = requests_.find(id);
  if (!found->second.started) FreePlaceOf(found->second);
  requests_.erase(found);
}

void RequestQueue::Expire(Time now, Plan& plan) const {
  if (timeout_ <= KeepAlive::zero()) return;
  for (const auto& [id, request] : requests_) {
    if (!request.give_up_at) continue;
    if (*request.give_up_at <= now) {
      plan.expire.push_back(id);
    } else {
      plan.WakeBy(*request.give_up_at);
    }
  }
  std::ranges::sort(plan.expire);
}

KeepAliveClaims::Parties RequestQueue::PartiesOf(const Waiting& waiting) const {
  KeepAliveClaims::Parties parties;
  for (const api::RequestId id : waiting) parties.insert(At(id).party);
  return parties;
}

std::string RequestQueue::CheckInvariants() const {
  QueuePlaces taken = places_.WithoutRequests();
  for (const auto& [id, request] : requests_) {
    if (!request.started) taken.Add(request.key, request.party.name(), request.length);
  }
  if (!taken.HasCountsOf(places_)) return "wrong count of waiting requests";
  return taken.IsOverfull() ? "more waiting requests than places" : "";
}

}  // namespace quire::scheduler
