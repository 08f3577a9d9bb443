// Work that may block (files, large parses) on a pool of threads, awaited from the I/O thread. The work is not
// interrupted by cancellation, which is seen when it is done and the coroutine goes on.
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
#include <optional>
#include <type_traits>
#include <utility>

#include "server/http/awaitable.h"
#include "server/routes/work_pools.h"

namespace quire::server {

// A plain operation rather than a coroutine spawned on the pool: that one would share the caller's
// cancellation signal, which the I/O thread emits, with a pool thread. What the work throws (std::bad_alloc) is thrown
// again on the I/O thread, where it ends the one request.
template <class Work>
Awaitable<std::invoke_result_t<Work&>> RunBlocking(WorkPool& pool, Work work) {
  namespace asio = boost::asio;
  using Value = std::invoke_result_t<Work&>;
  using Signature = void(std::exception_ptr, std::optional<Value>);
  auto operation = asio::async_initiate<const asio::use_awaitable_t<>, Signature>(
      [](auto handler, WorkPool* workers, Work task) {
        auto home = asio::make_work_guard(asio::get_associated_executor(handler));
        workers->Post(
            [home = std::move(home), handler = std::move(handler), task = std::move(task)]() mutable {
              std::exception_ptr error;
              std::optional<Value> value;
              try {
                value.emplace(task());
              } catch (...) {
                error = std::current_exception();
              }
              auto finish = [handler = std::move(handler), error, value = std::move(value)]() mutable {
                std::move(handler)(error, std::move(value));
              };
              asio::post(home.get_executor(), std::move(finish));
            });
      },
      asio::use_awaitable, &pool, std::move(work));
  std::optional<Value> value = co_await std::move(operation);
  co_return *std::move(value);
}

}  // namespace quire::server
