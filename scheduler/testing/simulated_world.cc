#include "scheduler/testing/simulated_world.h"

#include <signal.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "scheduler/testing/simulated_runner.h"

namespace quire::scheduler::simulation {
namespace {

World* current = nullptr;

}  // namespace

World& World::Current() { return *current; }

World::World(uint64_t seed, Faults faults) : now_(std::chrono::hours(1)), random_(seed), faults_(faults) {
  current = this;
  After(Milliseconds(500), [this] { InjectFault(); });
}

World::~World() {
  runners_.clear();
  current = nullptr;
}

void World::Break(std::string what) {
  if (broken_.empty()) broken_ = std::move(what);
}

World::Milliseconds World::Delay() {
  switch (Below(16)) {
    case 0:
      return Milliseconds(Below(3000));
    case 1:
    case 2:
      return Milliseconds(Below(300));
    default:
      return Milliseconds(Below(30));
  }
}

bool World::Later(const Event& a, const Event& b) {
  return std::pair(a.at, a.order) > std::pair(b.at, b.order);
}

void World::After(Milliseconds delay, std::function<void()> what) {
  events_.push_back({now_ + delay, ++orders_, std::move(what)});
  std::ranges::push_heap(events_, Later);
}

uint64_t World::FaultsOf(const std::string& model) const {
  const auto found = faults_of_.find(model);
  return found == faults_of_.end() ? 0 : found->second;
}

uint64_t World::FaultsBefore(const std::string& model) const {
  const bool doomed = std::ranges::any_of(runners_, [&model](const auto& entry) {
    return entry.second->model() == model && entry.second->doomed();
  });
  return FaultsOf(model) - (doomed ? 1 : 0);
}

bool World::InOrder(const std::string& model, api::RequestId id, const api::Client& owner) {
  const auto is_newest = [this, id](const std::string& of) {
    std::set<api::RequestId>& submitted = submitted_[of];
    const bool newest = submitted.contains(id) || submitted.empty() || *submitted.rbegin() < id;
    submitted.insert(id);
    return newest;
  };
  const bool in_order = is_newest(model);
  const bool in_order_of_owner = is_newest(model + '/' + owner.party.name() + '/' + owner.Member());
  return FaultsOf(model) > 0 ? in_order_of_owner : in_order;
}

void World::ReadLinks() {
  for (const auto& [pid, runner] : runners_) runner->ReadLink();
}

void World::Advance(Milliseconds step) {
  const Time until = now_ + step;
  if (events_.empty() || events_.front().at > until) {
    now_ = until;
    return;
  }
  now_ = std::max(now_, events_.front().at);
  while (!events_.empty() && events_.front().at <= now_) {
    std::ranges::pop_heap(events_, Later);
    const std::function<void()> what = std::move(events_.back().what);
    events_.pop_back();
    what();
  }
}

SimulatedRunner& World::StartRunner(const boost::asio::any_io_executor& executor, const std::string& name,
                                    boost::asio::local::stream_protocol::socket& ours) {
  const auto pid = static_cast<pid_t>(1000 + ++runners_started_);
  auto runner = std::make_unique<SimulatedRunner>(*this, executor, pid, name, ours);
  return *runners_.emplace(pid, std::move(runner)).first->second;
}

SimulatedRunner* World::Find(pid_t pid) {
  const auto found = runners_.find(pid);
  return found == runners_.end() ? nullptr : found->second.get();
}

void World::RemoveRunner(pid_t pid) { runners_.erase(pid); }

// To some runner, every few seconds.
void World::InjectFault() {
  After(Milliseconds(200 + Below(6000)), [this] { InjectFault(); });
  if (runners_.empty()) return;
  SimulatedRunner& runner =
      *std::next(runners_.begin(), Below(static_cast<uint32_t>(runners_.size())))->second;
  if (!runner.alive()) return;
  const uint32_t kind = Below(8);
  const bool wanted = (kind < 4 && faults_.deaths) || ((kind == 4 || kind == 5) && faults_.hangs) ||
                      (kind == 6 && faults_.garbage);
  if (!wanted) return;
  runner.CountFault();
  switch (kind) {
    case 0:
    case 1:
      return runner.Die({.by_signal = true, .value = SIGKILL, .external = true});
    case 2:
      return runner.Die({.by_signal = true, .value = SIGABRT, .external = false});
    case 3:
      return runner.CloseLink();
    case 4:
      return runner.Stop();
    case 5:
      return runner.RunInCircles();
    default:
      return runner.SendGarbage();
  }
}

}  // namespace quire::scheduler::simulation
