// Messages from other threads to one owner thread, in order.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace quire::runner::engine {

// Any thread posts; one thread takes. Its length is bounded by the protocol: the daemon admits a bounded
// number of requests per runner, and each has a bounded number of messages under way.
template <class T>
class Mailbox {
 public:
  void Post(T message) {
    {
      std::lock_guard lock(mutex_);
      messages_.push_back(std::move(message));
    }
    arrived_.notify_one();
  }

  // Everything that is there now; empty when nothing is.
  std::vector<T> PopAll() {
    std::lock_guard lock(mutex_);
    return std::exchange(messages_, {});
  }

  // Waits for the first message, at most `timeout`.
  std::vector<T> WaitAndPopAll(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, timeout, [this] { return !messages_.empty(); });
    return std::exchange(messages_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<T> messages_;  // guarded by mutex_
};

}  // namespace quire::runner::engine
