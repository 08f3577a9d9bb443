// Connections to Redis that are ready. A borrower never waits for one, and has it alone, so that no question
// waits for another's long reply. A thread of its own makes them.
//
// A server that fails is left alone: after three failures in a row (a connection that cannot be made, a
// question that is not answered in time) it is tried once every `retry_after`. An outage is one line in the
// log, and its end another. Any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "api/base/mutex.h"
#include "server/tier/circuit_breaker.h"
#include "server/tier/redis_client.h"

namespace quire::server {

class RedisPool {
 public:
  struct Options {
    RedisAddress address;
    std::chrono::nanoseconds connect_time = std::chrono::milliseconds(50);
    std::chrono::nanoseconds retry_after = std::chrono::seconds(5);
  };
  explicit RedisPool(Options options);
  ~RedisPool();  // REQUIRES: nothing is borrowed
  RedisPool(const RedisPool&) = delete;
  RedisPool& operator=(const RedisPool&) = delete;

  // Null: none is ready, or the server is left alone.
  std::unique_ptr<RedisClient> Borrow();
  // `answered`: the borrower's questions were answered in time.
  void Return(std::unique_ptr<RedisClient> client, bool answered);

  // For a connection that is not of the pool. False: the server is left alone, or it cannot be made.
  bool Connect(RedisClient& client);
  // Such a connection failed.
  void ReportFailure(std::string_view what);

  bool connected() const;
  uint64_t failures() const;  // connections that could not be made

 private:
  static constexpr size_t kReady = 2;  // for runners that ask at the same time
  static constexpr size_t kIdleMax = 4;

  void Run();
  void RemoveClosed() REQUIRES(mutex_);
  void Failed(std::string_view what) REQUIRES(mutex_);

  const Options options_;
  mutable api::Mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::unique_ptr<RedisClient>> idle_ GUARDED_BY(mutex_);
  size_t borrowed_ GUARDED_BY(mutex_) = 0;
  CircuitBreaker breaker_ GUARDED_BY(mutex_);
  bool reported_ GUARDED_BY(mutex_) = false;  // the outage, in the log
  uint64_t failures_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::unique_ptr<RedisClient> next_ GUARDED_BY(mutex_);  // being connected
  std::thread thread_;                                    // last
};

}  // namespace quire::server
