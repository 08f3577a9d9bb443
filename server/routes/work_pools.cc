#include "server/routes/work_pools.h"

#include <boost/asio/post.hpp>
#include <tuple>
#include <utility>

namespace quire::server {

// Each task posts one entry to the threads' queue. A thread that has an entry runs tasks until none may run,
// so that one whose party had all its threads when the entry was at the front is run by the thread that its
// party gives up.
void WorkPool::Queue(std::move_only_function<void()> task, std::string party) {
  ++tasks_;
  const api::MutexLock lock(mutex_);
  boost::asio::post(threads_.get_executor(), [this] { RunTasks(); });
  const auto [entry, is_new] = parties_.try_emplace(std::move(party));
  if (is_new) entry->second.turn = ++turns_;
  entry->second.waiting.push_back(std::move(task));
}

size_t WorkPool::WaitingOf(const std::string& party) {
  const api::MutexLock lock(mutex_);
  const auto found = parties_.find(party);
  return found == parties_.end() ? 0 : found->second.waiting.size();
}

bool WorkPool::DropWaiting() {
  Parties dropped;
  const api::MutexLock lock(mutex_);
  dropped.swap(parties_);
  return !dropped.empty();
}

bool WorkPool::MayRun(const Parties::value_type& party) const {
  return !party.second.waiting.empty() && (party.first.empty() || party.second.running < party_threads_);
}

WorkPool::Parties::iterator WorkPool::NextParty() {
  const auto rank = [](const Party& party) { return std::tuple(party.running, party.turn); };
  auto next = parties_.end();
  for (auto party = parties_.begin(); party != parties_.end(); ++party) {
    if (!MayRun(*party)) continue;
    if (next == parties_.end() || rank(party->second) < rank(next->second)) next = party;
  }
  return next;
}

void WorkPool::RunTasks() {
  api::UniqueLock lock(mutex_);
  for (auto found = NextParty(); found != parties_.end(); found = NextParty()) {
    Party& party = found->second;  // stays where it is while others come and go
    const std::string* name = &found->first;
    auto task = std::move(party.waiting.front());
    party.waiting.pop_front();
    party.turn = ++turns_;
    ++party.running;
    lock.unlock();
    {
      const api::StopScope stop(stopped_);
      std::exchange(task, nullptr)();
    }
    lock.lock();
    if (--party.running == 0 && party.waiting.empty()) parties_.erase(parties_.find(*name));
  }
}

}  // namespace quire::server
