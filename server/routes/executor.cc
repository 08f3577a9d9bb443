#include "server/routes/executor.h"

#include <time.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <optional>
#include <utility>

namespace quire::server {
namespace {

// What this thread has taken of a processor.
int64_t ProcessorNanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

WorkKind Executor::AddKind(size_t threads_max) {
  kinds_.emplace_back(threads_max);
  return WorkKind(*this, kinds_.size() - 1);
}

bool Executor::Kind::MayRun(const fair::PartyId& party) const {
  if (running == threads_max) return false;
  const auto found = running_of.find(party.number());
  const size_t of_party = found == running_of.end() ? 0 : found->second;
  return party == fair::PartyId() || of_party < std::max<size_t>(threads_max - 1, 1);
}

// Each task posts one entry to the threads' queue. A thread that has an entry runs tasks until none may run,
// so that one whose kind had all its threads when the entry was at the front is run by the thread that the
// kind gives up.
void Executor::Post(const fair::PartyId& party, Task task) {
  ++kinds_[task.kind].tasks;
  const api::MutexLock lock(mutex_);
  boost::asio::post(threads_.get_executor(), [this] { RunTasks(); });
  const uint64_t kind = task.kind;
  queue_.Push(party, kind, std::move(task));
}

void Executor::RunTasks() {
  const auto may_run = [this](const fair::PartyId& party, uint64_t kind) {
    return kinds_[kind].MayRun(party);
  };
  api::UniqueLock lock(mutex_);
  while (auto next = queue_.Pop(may_run)) {
    const auto [party, number] = next->turn;
    Kind& kind = kinds_[number];
    ++kind.running;
    ++kind.running_of[party.number()];
    lock.unlock();
    const int64_t begin = ProcessorNanoseconds();
    {
      const api::StopScope stop(stopped_);
      std::exchange(next->item.run, nullptr)();
    }
    const int64_t cost = ProcessorNanoseconds() - begin;
    lock.lock();
    --kind.running;
    if (--kind.running_of[party.number()] == 0) kind.running_of.erase(party.number());
    queue_.Charge(next->turn, std::max(cost, kTaskNanoseconds));
  }
}

void Executor::DropWaiting() {
  for (bool dropped = true; dropped;) {
    std::optional<Queue::Next> next;  // goes without the mutex
    const api::MutexLock lock(mutex_);
    next = queue_.Pop();
    if (next) queue_.Charge(next->turn, 0);
    dropped = next.has_value();
  }
}

size_t WorkKind::WaitingOf(const fair::PartyId& party) const {
  const api::MutexLock lock(executor_->mutex_);
  return executor_->queue_.WaitingOf(party, number_);
}

}  // namespace quire::server
