// The threads of the daemon for work that may block or that takes long. Each kind has its own, so that no
// kind waits for another: a chat whose model is known waits neither for a list, nor for a slow disk, nor for
// the store's lock. Pulls and pushes have a thread each (registry/transfer.h).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "api/base/mutex.h"
#include "api/base/stop_request.h"

namespace quire::server {

// Any thread. Its queue needs no bound of its own: an entry belongs to a request, and connections are
// bounded.
//
// Parties (http/party.h) take turns: a free thread takes the oldest task of the party with the fewest running
// tasks, and of parties alike the one that waits longest since its last. Tasks of one party start in the
// order they came in. One party runs on all threads but one, so that long tasks of one leave a thread for the
// next that comes; the empty party, the daemon's own work, may have them all.
class WorkPool {
 public:
  explicit WorkPool(size_t threads) : party_threads_(threads > 1 ? threads - 1 : 1), threads_(threads) {}

  // A task that throws ends the process: what must tell its caller is for RunBlocking(). `party`: empty is
  // one, too. A coroutine whose task is lost would wait forever.
  template <class Task>
  void Post(Task task, std::string_view party = {}) noexcept {
    Queue(std::move(task), std::string(party));
  }
  // Tasks that it was given so far.
  uint64_t tasks() const { return tasks_; }
  size_t WaitingOf(const std::string& party);
  // Nobody waits for results any more: tasks see it (api::StopScope), also those that have not begun.
  void Stop() { stopped_ = true; }
  // What is posted afterwards does not run.
  void Join() { threads_.join(); }
  // Destroys the tasks that will not run, whose coroutines go with them. False: there were none. REQUIRES:
  // Join() was called.
  bool DropWaiting();

 private:
  struct Party {
    std::deque<std::move_only_function<void()>> waiting = {};
    size_t running = 0;
    uint64_t turn = 0;  // when it had its last, or came
  };
  using Parties = std::unordered_map<std::string, Party>;

  void Queue(std::move_only_function<void()> task, std::string party);
  void RunTasks();
  bool MayRun(const Parties::value_type& party) const REQUIRES(mutex_);
  Parties::iterator NextParty() REQUIRES(mutex_);

  const size_t party_threads_;
  std::atomic<uint64_t> tasks_ = 0;
  std::atomic<bool> stopped_ = false;
  api::Mutex mutex_;
  Parties parties_ GUARDED_BY(mutex_);  // with tasks that wait or run
  uint64_t turns_ GUARDED_BY(mutex_) = 0;
  boost::asio::thread_pool threads_;  // last: its threads use the others
};

struct WorkPools {
  WorkPool cpu{2};         // parses and writes large bodies; touches no file
  WorkPool parses{1};      // parses bodies of up to 128 KiB and writes vectors, each in a few milliseconds
  WorkPool lookups{1};     // models in memory: looks whether their files are unchanged
  WorkPool reads{2};       // reads the store: lists, and models that are not in memory
  WorkPool blobs{2};       // writes the store's files: uploads, converted weights, and their removal
  WorkPool edits{1};       // changes the store's names; waits for its lock
  WorkPool settings{1};    // reads settings at a reload; reads and changes keys
  WorkPool handshakes{1};  // computes steps of TLS handshakes

  // As of each pool.
  void Stop() {
    for (WorkPool* pool : All()) pool->Stop();
  }
  // Waits for all work that was given.
  void Join() {
    for (WorkPool* pool : All()) pool->Join();
  }
  // A coroutine that goes may post to another pool.
  void DropWaiting() {
    while (std::ranges::count_if(All(), &WorkPool::DropWaiting) > 0) {
    }
  }

 private:
  std::array<WorkPool*, 8> All() {
    return {&cpu, &parses, &lookups, &reads, &blobs, &edits, &settings, &handshakes};
  }
};

}  // namespace quire::server
