// The threads of the daemon for work that may block or that takes long. Each kind has its own, so that no kind
// waits for another: a chat whose model is known waits neither for a list, nor for a slow disk, nor for the
// store's lock. Pulls and pushes have a thread each (registry/transfer.h).
#pragma once

#include <spdlog/spdlog.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>

namespace quire::server {

// Any thread. Its queue needs no bound of its own: an entry belongs to a request, and connections are bounded.
class WorkPool {
 public:
  explicit WorkPool(size_t threads) : threads_(threads) {}

  // A task that throws is counted and logged: what must tell its caller is for RunBlocking().
  template <class Task>
  void Post(Task task) {
    ++tasks_;
    boost::asio::post(threads_.get_executor(), [task = std::move(task)]() mutable {
      try {
        task();
      } catch (const std::exception& error) {
        ++failures;
        spdlog::error("a background task failed: {}", error.what());
      }
    });
  }
  // Tasks of all pools that threw.
  static inline std::atomic<uint64_t> failures = 0;
  // Tasks that it was given so far.
  uint64_t tasks() const { return tasks_; }
  void Join() { threads_.join(); }

 private:
  boost::asio::thread_pool threads_;
  std::atomic<uint64_t> tasks_ = 0;
};

struct WorkPools {
  WorkPool cpu{2};       // parses and writes large bodies; touches no file
  WorkPool lookups{1};   // models in memory: looks whether their files are unchanged
  WorkPool reads{2};     // reads the store: lists, and models that are not in memory
  WorkPool blobs{2};     // writes the store's files: uploads, converted weights, and their removal
  WorkPool edits{1};     // changes the store's names; waits for its lock
  WorkPool settings{1};  // reads settings at a reload; reads and changes keys

  // Waits for all work that was given.
  void Join() {
    for (WorkPool* pool : {&cpu, &lookups, &reads, &blobs, &edits, &settings}) pool->Join();
  }
};

}  // namespace quire::server
