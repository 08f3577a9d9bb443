// Runs coroutines of a test on an io_context, one step at a time, on the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

namespace quire::scheduler {

// A coroutine under way. Shared with its completion handler.
template <class T>
struct Task {
  std::optional<T> value;
  std::exception_ptr error;
  boost::asio::cancellation_signal cancel;

  bool done() const { return value.has_value() || error != nullptr; }
  void Cancel() { cancel.emit(boost::asio::cancellation_type::terminal); }
};

struct Done {};

class IoLoop {
 public:
  IoLoop() : context_(std::make_unique<boost::asio::io_context>(1)) {}

  boost::asio::any_io_executor executor() { return context_->get_executor(); }

  template <class T>
  std::shared_ptr<Task<T>> Spawn(boost::asio::awaitable<T> work) {
    auto task = std::make_shared<Task<T>>();
    boost::asio::co_spawn(*context_, std::move(work),
                          boost::asio::bind_cancellation_slot(
                              task->cancel.slot(), [task](const std::exception_ptr& error, T value) {
                                task->error = error;
                                if (!error) task->value = std::move(value);
                              }));
    return task;
  }
  std::shared_ptr<Task<Done>> Spawn(boost::asio::awaitable<void> work) {
    return Spawn(AsValue(std::move(work)));
  }

  // Steps until the condition holds. A minute is taken for a hang.
  template <class Condition>
  void RunUntil(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("it does not come to that");
      context_->restart();
      if (context_->run_one_for(std::chrono::minutes(1)) == 0)
        throw std::runtime_error("nothing happens any more");
    }
  }
  template <class T>
  T Wait(const std::shared_ptr<Task<T>>& task) {
    RunUntil([&task] { return task->done(); });
    if (task->error) std::rethrow_exception(task->error);
    return *std::move(task->value);
  }
  template <class T>
  T Run(boost::asio::awaitable<T> work) {
    return Wait(Spawn(std::move(work)));
  }
  void Run(boost::asio::awaitable<void> work) { Wait(Spawn(std::move(work))); }
  // Everything that can run without waiting.
  void Poll() {
    context_->restart();
    context_->poll();
  }
  // Everything that happens in this time.
  void RunFor(std::chrono::milliseconds time) {
    context_->restart();
    context_->run_for(time);
  }
  // Destroys every coroutine where it stands.
  void Destroy() { context_.reset(); }

 private:
  static boost::asio::awaitable<Done> AsValue(boost::asio::awaitable<void> work) {
    co_await std::move(work);
    co_return Done{};
  }
  std::unique_ptr<boost::asio::io_context> context_;
};

}  // namespace quire::scheduler
