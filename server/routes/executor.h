// The threads of the daemon for work that may block or that takes long. Parties share them by weight: what a
// task took of a processor is charged to its party. Work of each kind has threads that no other kind takes,
// so that no kind waits for another: a chat whose model is known waits neither for a list, nor for a slow
// disk, nor for the store's lock. Pulls and pushes have a thread each (registry/transfer.h).
#pragma once

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <unordered_map>
#include <utility>

#include "api/base/fair/fair_queue.h"
#include "api/base/mutex.h"
#include "api/base/stop_request.h"

namespace quire::server {

class WorkKind;

// Any thread. Its queue needs no bound of its own: an entry belongs to a request, and connections are
// bounded.
class Executor {
 public:
  explicit Executor(size_t threads) : threads_(threads) {}
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Nobody waits for results any more: tasks see it (api::StopScope), also those that have not begun.
  void Stop() { stopped_ = true; }
  // Waits for all work that was given. What is posted afterwards does not run.
  void Join() { threads_.join(); }
  // Destroys the tasks that will not run, whose coroutines go with them; one that goes may post another.
  // REQUIRES: Join() was called.
  void DropWaiting();

  // A kind of work for at most as many threads. All kinds together have no more than there are. REQUIRES:
  // nothing was posted yet.
  WorkKind AddKind(size_t threads_max);

 private:
  friend class WorkKind;
  struct Task {
    uint64_t kind = 0;
    std::move_only_function<void()> run;
  };
  using Queue = fair::FairQueue<Task>;
  struct Kind {
    const size_t threads_max;
    std::atomic<uint64_t> tasks = 0;
    size_t running = 0;                                    // under the mutex
    std::unordered_map<uint64_t, size_t> running_of = {};  // by party; no zeros; under the mutex

    bool MayRun(const fair::PartyId& party) const;
  };
  // A task is charged what it took of a processor, and never less than its way to a thread costs: work that
  // only waits for a disk is shared, too.
  static constexpr int64_t kTaskNanoseconds = 50'000, kQuantumNanoseconds = 10'000'000;

  void Post(const fair::PartyId& party, Task task);
  void RunTasks();

  std::atomic<bool> stopped_ = false;
  std::deque<Kind> kinds_;
  api::Mutex mutex_;
  Queue queue_ GUARDED_BY(mutex_){kQuantumNanoseconds};  // a member is a kind
  boost::asio::thread_pool threads_;                     // last: its threads use the others
};

// One kind of an executor's work. Tasks of one party start in the order they came in. One party has all
// threads of the kind but one, so that long tasks of one leave a thread for the next that comes; nobody, for
// whom the daemon itself works, may have them all. Any thread.
class WorkKind {
 public:
  // A task that throws ends the process: what must tell its caller is for RunBlocking(). A coroutine whose
  // task is lost would wait forever.
  template <class Task>
  void Post(Task task, const fair::PartyId& party = {}) noexcept {
    executor_->Post(party, {number_, std::move(task)});
  }
  // Tasks that it was given so far.
  uint64_t tasks() const { return executor_->kinds_[number_].tasks; }
  size_t WaitingOf(const fair::PartyId& party) const;

 private:
  friend class Executor;
  WorkKind(Executor& executor, uint64_t number) : executor_(&executor), number_(number) {}

  Executor* executor_;
  uint64_t number_;
};

struct WorkPools {
  Executor executor{11};                    // as many threads as all kinds have
  WorkKind cpu = executor.AddKind(2);       // parses and writes large bodies; touches no file
  WorkKind parses = executor.AddKind(1);    // parses bodies of up to 128 KiB, writes vectors: milliseconds
  WorkKind lookups = executor.AddKind(1);   // models in memory: looks whether their files are unchanged
  WorkKind reads = executor.AddKind(2);     // reads the store: lists, and models that are not in memory
  WorkKind blobs = executor.AddKind(2);     // writes the store's files: uploads, weights, their removal
  WorkKind edits = executor.AddKind(1);     // changes the store's names; waits for its lock
  WorkKind settings = executor.AddKind(1);  // reads settings at a reload; reads and changes keys
  WorkKind steps = executor.AddKind(1);     // of TLS handshakes and compressed bodies: a millisecond each
};

}  // namespace quire::server
