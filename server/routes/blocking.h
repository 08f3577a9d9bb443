// Work that may block (files, large parses) on a pool of threads, awaited from the I/O thread. The work is
// not interrupted by cancellation, which is seen when it is done and the coroutine goes on.
//
// Give the work as a named object: gcc 12 destroys a closure that is a temporary of an awaited expression
// twice.
#pragma once

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "server/http/awaitable.h"
#include "server/http/party.h"
#include "server/routes/executor.h"

namespace quire::server {

// A piece of work under way: the pool's until it is posted back, then the I/O thread's.
template <class Work>
struct BlockingJob {
  using Value = std::invoke_result_t<Work&>;
  using Signature = void(std::exception_ptr, std::optional<Value>);
  using Handler = typename boost::asio::async_result<boost::asio::use_awaitable_t<>, Signature>::handler_type;

  explicit BlockingJob(Work task) : work(std::move(task)) {}
  void Run() {
    try {
      value.emplace(work());
    } catch (...) {
      error = std::current_exception();
    }
  }
  void Finish() {
    Handler resume = *std::move(handler);
    handler.reset();
    std::move(resume)(error, std::move(value));
  }

  Work work;
  std::optional<Handler> handler;
  std::exception_ptr error;
  std::optional<Value> value;
};

// A plain operation rather than a coroutine spawned on the pool: that one would share the caller's
// cancellation signal, which the I/O thread emits, with a pool thread. What the work throws (std::bad_alloc)
// is thrown again on the I/O thread, where it ends the one request. `party`: whose turn in the pool it takes.
template <class Work>
Awaitable<std::invoke_result_t<Work&>> RunBlocking(WorkKind& pool, Work work,
                                                   const fair::PartyId& party = {}) {
  namespace asio = boost::asio;
  using Job = BlockingJob<Work>;
  auto job = std::make_shared<Job>(
      std::move(work));  // it owns this coroutine while it runs, so nothing here keeps it
  auto operation = asio::async_initiate<const asio::use_awaitable_t<>, typename Job::Signature>(
      [](auto handler, WorkKind* workers, fair::PartyId owner, std::shared_ptr<Job> started) {
        auto home = asio::make_work_guard(asio::get_associated_executor(handler));
        started->handler.emplace(std::move(handler));
        workers->Post(
            [home = std::move(home), started = std::move(started)] {
              started->Run();
              asio::post(home.get_executor(), [started] { started->Finish(); });
            },
            owner);
      },
      asio::use_awaitable, &pool, party, std::move(job));
  auto value = co_await std::move(operation);
  co_return *std::move(value);
}

// A step that gives nothing back; it stays where it is.
inline Awaitable<void> RunStep(WorkKind& pool, const std::function<void()>& step,
                               const fair::PartyId& party) {
  auto work = [&step] {
    step();
    return true;
  };
  co_await RunBlocking(pool, std::move(work), party);
}

// RunBlocking() in the turn of the party whose exchange it is.
template <class Work>
Awaitable<std::invoke_result_t<Work&>> RunFor(Exchange& exchange, WorkKind& pool, Work work) {
  auto value = co_await RunBlocking(pool, std::move(work), PartyOf(exchange));
  co_return value;
}

}  // namespace quire::server
