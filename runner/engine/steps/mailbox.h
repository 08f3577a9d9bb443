// Messages from other threads to one owner thread, in order.
#pragma once

#include <chrono>
#include <condition_variable>
#include <utility>
#include <vector>

#include "api/base/mutex.h"

namespace quire::runner::engine {

// Any thread posts; one thread takes. Its length is bounded by the protocol: the daemon admits a bounded
// number of requests per runner, and each has a bounded number of messages under way.
template <class T>
class Mailbox {
 public:
  void Post(T message) {
    {
      const api::MutexLock lock(mutex_);
      messages_.push_back(std::move(message));
    }
    arrived_.notify_one();
  }

  // Everything that is there now; empty when nothing is.
  std::vector<T> PopAll() {
    const api::MutexLock lock(mutex_);
    return std::exchange(messages_, {});
  }

  // Waits for the first message, at most `timeout`.
  std::vector<T> WaitAndPopAll(std::chrono::milliseconds timeout) {
    api::UniqueLock lock(mutex_);
    arrived_.wait_for(lock, timeout, [this]() REQUIRES(mutex_) { return !messages_.empty(); });
    return std::exchange(messages_, {});
  }

 private:
  api::Mutex mutex_;
  std::condition_variable arrived_;
  std::vector<T> messages_ GUARDED_BY(mutex_);
};

}  // namespace quire::runner::engine
