#include "scheduler/request_queue.h"

#include <algorithm>
#include <utility>

namespace quire::scheduler {

RequestQueue::RequestQueue(const SchedulerOptions& options)
    : limits_{.total = static_cast<uint64_t>(std::max(options.queue_max, 1))},
      limits_of_model_{.total = options.model_queue_max < 1 ? UINT64_MAX
                                                            : static_cast<uint64_t>(options.model_queue_max)},
      places_(limits_),
      timeout_(options.queue_timeout) {}

std::optional<api::RequestId> RequestQueue::PlaceFor(const std::string& key, const fair::PartyId& party) {
  const auto refusal_by = [&party](fair::Quota& places) {
    return fair::Quota::Lease(places, party).RefusalFor(1);
  };
  const auto known = places_of_models_.find(key);
  const auto by_model = known == places_of_models_.end() ? std::nullopt : refusal_by(known->second);
  const auto by_all = refusal_by(places_);
  for (const auto& refusal : {by_model, by_all}) {
    if (refusal && refusal->over == fair::PartyId()) return std::nullopt;
  }
  if (by_model) return NewestOf(by_model->over, &key);  // its place is one of all, too
  return by_all ? NewestOf(by_all->over, nullptr) : Plan::kNoRequest;
}

// REQUIRES: one of the party has a place, of the model unless that is null.
api::RequestId RequestQueue::NewestOf(const fair::PartyId& party, const std::string* model) const {
  std::pair<bool, api::RequestId> newest{};
  for (const auto& [id, request] : requests_) {
    const bool has_place = request.place.taken() && (model == nullptr || request.key == *model);
    if (!has_place || request.client.party != party) continue;
    newest = std::max(newest, {!exchanges_.at(request.client.exchange).begun, id});
  }
  return newest.second;
}

bool RequestQueue::Add(api::RequestId id, QueuedRequest request, Time now) {
  const auto place = PlaceFor(request.key, request.client.party);
  if (!place) return false;
  if (*place != Plan::kNoRequest) {
    QueuedRequest& displaced = At(*place);
    displaced.give_up_at.reset();
    FreePlaceOf(displaced);
    displaced_.push_back(*place);
  }
  fair::Quota& of_model = places_of_models_.try_emplace(request.key, limits_of_model_).first->second;
  request.place = {{places_, request.client.party}, {of_model, request.client.party}};
  for (auto* lease : {&request.place.of_all, &request.place.of_model}) lease->GrowTo(1);
  if (timeout_ > KeepAlive::zero() && timeout_ < Time::max() - now) request.give_up_at = now + timeout_;
  newest_ = std::max(newest_, id);
  ++exchanges_[request.client.exchange].requests;
  requests_.emplace(id, std::move(request));
  return true;
}

void RequestQueue::FreePlaceOf(QueuedRequest& request) {
  if (!request.place.taken()) return;
  request.place = {};
  const auto of_model = places_of_models_.find(request.key);
  if (of_model->second.held() == 0) places_of_models_.erase(of_model);
}

QueuedRequest* RequestQueue::Find(api::RequestId id) {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : &found->second;
}

void RequestQueue::Start(QueuedRequest& request, bool answers) {
  if (request.started) return;
  request.started = true;
  if (answers && !request.client.exchange.empty()) exchanges_.at(request.client.exchange).begun = true;
  request.give_up_at.reset();
  FreePlaceOf(request);
}

void RequestQueue::Erase(api::RequestId id) {
  const auto found = requests_.find(id);
  FreePlaceOf(found->second);
  const auto exchange = exchanges_.find(found->second.client.exchange);
  if (--exchange->second.requests == 0) exchanges_.erase(exchange);
  requests_.erase(found);
}

void RequestQueue::Expire(Time now, Plan& plan) {
  plan.displaced = std::exchange(displaced_, {});
  std::erase_if(plan.displaced, [this](api::RequestId id) {
    const QueuedRequest* request = Find(id);
    return request == nullptr || request->started;
  });
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
  for (const api::RequestId id : waiting) parties.insert(At(id).client.party);
  return parties;
}

std::string RequestQueue::CheckInvariants() const {
  std::map<std::string, uint64_t> taken;
  uint64_t all = 0;
  for (const auto& [id, request] : requests_) {
    const bool has_place = request.place.taken();
    const bool is_displaced = std::ranges::find(displaced_, id) != displaced_.end();
    if (has_place == (request.started || is_displaced)) return "a request waits without a place, or has one";
    if (!has_place) continue;
    ++taken[request.key];
    ++all;
  }
  if (all != places_.held() || taken.size() != places_of_models_.size())
    return "wrong count of waiting requests";
  for (const auto& [key, count] : taken) {
    if (count != places_of_models_.at(key).held()) return "wrong count of waiting requests of " + key;
    if (count > limits_of_model_.total) return "more waiting requests than places of " + key;
  }
  return all > limits_.total ? "more waiting requests than places" : "";
}

}  // namespace quire::scheduler
