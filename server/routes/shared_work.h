// Work that takes long and whose result many ask for at once: a client that asks on all its connections has
// it done once.
#pragma once

#include <spdlog/spdlog.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "server/http/awaitable.h"

namespace quire::server {

// I/O thread only; outlives every call.
template <class Value>
class SharedWork {
 public:
  using Result = std::shared_ptr<const Value>;
  using Work = std::function<Awaitable<Value>()>;

  // `failed` is what those get whose work throws. It is made at the start, as memory may be short then.
  SharedWork(Work work, Value failed)
      : work_(std::move(work)), failed_(std::make_shared<const Value>(std::move(failed))) {}
  SharedWork(const SharedWork&) = delete;
  SharedWork& operator=(const SharedWork&) = delete;

  // The result of work that began after the call: those who ask while some is under way share the next.
  Awaitable<Result> Get() {
    const auto executor = co_await boost::asio::this_coro::executor;
    if (next_ == nullptr) next_ = std::make_shared<Round>(executor);
    const auto mine = next_;
    if (!working_) Start(executor);
    while (mine->result == nullptr) co_await mine->done.async_wait(kTuple);
    co_return mine->result;
  }

 private:
  // One piece of work and those who wait for it.
  struct Round {
    explicit Round(const boost::asio::any_io_executor& executor)
        : done(executor, boost::asio::steady_timer::time_point::max()) {}
    boost::asio::steady_timer done;  // never expires; canceled when there is a result
    Result result;
  };

  void Start(const boost::asio::any_io_executor& executor) {
    working_ = true;
    try {
      boost::asio::co_spawn(executor, ServeRounds(), boost::asio::detached);
    } catch (...) {
      working_ = false;  // no memory: the next to ask tries again
      throw;
    }
  }
  // One round at a time, while somebody waits for one.
  Awaitable<void> ServeRounds() {
    while (next_ != nullptr) {
      const auto current = std::exchange(next_, nullptr);
      try {
        Value value = co_await work_();
        current->result = std::make_shared<const Value>(std::move(value));
      } catch (const std::exception& error) {
        spdlog::error("shared work failed: {}", error.what());
      }
      if (current->result == nullptr) current->result = failed_;
      current->done.cancel();
    }
    working_ = false;
  }

  const Work work_;
  const Result failed_;
  std::shared_ptr<Round> next_;  // has not begun; null when nobody waits for one
  bool working_ = false;
};

}  // namespace quire::server
