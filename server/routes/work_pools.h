// The threads of the daemon for work that may block or that takes long. Each kind has its own, so that no kind
// waits for another: a chat whose model is known waits neither for a list, nor for a slow disk, nor for the
// store's lock. Pulls and pushes have a thread each (registry/transfer.h).
#pragma once

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "api/base/reserved_memory.h"

namespace quire::server {

// Any thread. Its queue needs no bound of its own: an entry belongs to a request, and connections are bounded.
//
// Parties (http/party.h) take turns: a free thread takes the oldest task of the party with the fewest running tasks, and of
// parties alike the one that waits longest since its last. Tasks of one party start in the order they came in. One party runs
// on all threads but one, so that long tasks of one leave a thread for the next that comes; the empty party, the daemon's own
// work, may have them all.
class WorkPool {
 public:
  explicit WorkPool(size_t threads) : party_threads_(threads > 1 ? threads - 1 : 1), threads_(threads) {}

  // A task that throws is counted and logged: what must tell its caller is for RunBlocking(). `party`: empty is one, too. Draws
  // on the memory reserve: a coroutine whose task is lost would wait forever.
  template <class Task>
  void Post(Task task, std::string_view party = {}) {
    const api::ReservedMemoryScope reserved;
    Queue(std::move(task), std::string(party));
  }
  // Tasks of all pools that threw.
  static inline std::atomic<uint64_t> failures = 0;
  // Tasks that it was given so far.
  uint64_t tasks() const { return tasks_; }
  size_t WaitingOf(const std::string& party);
  void Join() { threads_.join(); }

 private:
  struct Party {
    std::deque<std::move_only_function<void()>> waiting = {};
    size_t running = 0;
    uint64_t turn = 0;  // when it had its last, or came
  };
  using Parties = std::unordered_map<std::string, Party>;

  void Queue(std::move_only_function<void()> task, std::string party);
  void RunTasks();
  // Under mutex_:
  bool MayRun(const Parties::value_type& party) const;
  Parties::iterator NextParty();
  void RunOne(Parties::iterator found, std::unique_lock<std::mutex>& lock);

  const size_t party_threads_;
  std::atomic<uint64_t> tasks_ = 0;
  std::mutex mutex_;
  // Guarded by mutex_:
  Parties parties_;  // with tasks that wait or run
  uint64_t turns_ = 0;
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

  // Waits for all work that was given.
  void Join() {
    for (WorkPool* pool : {&cpu, &parses, &lookups, &reads, &blobs, &edits, &settings, &handshakes}) {
      pool->Join();
    }
  }
};

}  // namespace quire::server
