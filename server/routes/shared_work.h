// Work that takes long and whose result many ask for at once: a client that asks on all its connections has
// it done once.
#pragma once

#include <boost/asio/co_spawn.hpp>
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

  explicit SharedWork(Work work) : work_(std::move(work)) {}
  SharedWork(const SharedWork&) = delete;
  SharedWork& operator=(const SharedWork&) = delete;

  // The result of work that began after the call: those who ask while some is under way share the next. What
  // it throws is thrown to all of them.
  Awaitable<Result> Get() {
    const auto executor = co_await boost::asio::this_coro::executor;
    if (next_ == nullptr) next_ = std::make_shared<Round>(executor);
    const auto mine = next_;
    if (!working_) Start(executor);
    while (mine->result == nullptr && !mine->thrown) co_await mine->done.async_wait(kTuple);
    if (mine->thrown) std::rethrow_exception(mine->thrown);
    co_return mine->result;
  }

 private:
  // One piece of work and those who wait for it.
  struct Round {
    explicit Round(const boost::asio::any_io_executor& executor)
        : done(executor, boost::asio::steady_timer::time_point::max()) {}
    boost::asio::steady_timer done;  // never expires; canceled when there is a result
    Result result;
    std::exception_ptr thrown;
  };

  void Start(const boost::asio::any_io_executor& executor) noexcept {
    working_ = true;
    boost::asio::co_spawn(executor, ServeRounds(), kEndsProcess);
  }
  // One round at a time, while somebody waits for one.
  Awaitable<void> ServeRounds() {
    while (next_ != nullptr) {
      const auto current = std::exchange(next_, nullptr);
      try {
        Value value = co_await work_();
        current->result = std::make_shared<const Value>(std::move(value));
      } catch (...) {
        current->thrown = std::current_exception();
      }
      current->done.cancel();
    }
    working_ = false;
  }

  const Work work_;
  std::shared_ptr<Round> next_;  // has not begun; null when nobody waits for one
  bool working_ = false;
};

}  // namespace quire::server
