// A bounded queue between the threads that log and the thread that writes: a log that nobody reads (a full
// pipe, a journal that stands still) stops no request.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace quire::server {

// Push(), Drain() and dropped() may be called by any thread. The thread that writes has all signals blocked.
class LogQueue {
 public:
  // A line with its newline, or the fields of a journal entry.
  using Entry = std::vector<std::string>;

  struct Limits {
    size_t entries = 4096;
    size_t bytes = size_t{1} << 20;  // of the texts of all entries
  };
  struct Output {
    std::function<void(const Entry&)> write;          // may block; called by the queue's thread only
    std::function<Entry(uint64_t)> describe_dropped;  // the entry that replaces this many dropped ones
  };

  explicit LogQueue(Output output) : LogQueue(std::move(output), Limits()) {}
  LogQueue(Output output, Limits limits);
  // Lets what was pushed be written for kDrainTime. A thread that is still blocked in a write is left behind.
  ~LogQueue();
  LogQueue(const LogQueue&) = delete;
  LogQueue& operator=(const LogQueue&) = delete;

  // Never waits for a write. When the queue is full, its oldest entries are dropped.
  void Push(Entry entry);
  // Waits until all that was pushed is written. False: that took longer than `limit`.
  bool Drain(std::chrono::nanoseconds limit) const;
  // Entries dropped since the start.
  uint64_t dropped() const;

  // From now on a signal that ends the program (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) first lets this
  // queue drain, for half a second at most. Signals with another handler are left alone. REQUIRES: called
  // once; the queue lives as long as the program.
  void DrainAtCrash() const;

  static constexpr std::chrono::seconds kDrainTime{1};

 private:
  struct State;

  std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace quire::server
