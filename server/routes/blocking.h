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
#include <type_traits>
#include <utility>

#include "server/http/awaitable.h"
#include "server/routes/work_pools.h"

namespace quire::server {

// A plain operation rather than a coroutine spawned on the pool: that one would share the caller's
// cancellation signal, which the I/O thread emits, with a pool thread. REQUIRES: the work does not throw.
template <class Work>
Awaitable<std::invoke_result_t<Work&>> RunBlocking(WorkPool& pool, Work work) {
  namespace asio = boost::asio;
  using Value = std::invoke_result_t<Work&>;
  return asio::async_initiate<const asio::use_awaitable_t<>, void(Value)>(
      [](auto handler, WorkPool* workers, Work task) {
        auto home = asio::make_work_guard(asio::get_associated_executor(handler));
        workers->Post(
            [home = std::move(home), handler = std::move(handler), task = std::move(task)]() mutable {
              auto finish = [handler = std::move(handler), value = task()]() mutable {
                std::move(handler)(std::move(value));
              };
              asio::post(home.get_executor(), std::move(finish));
            });
      },
      asio::use_awaitable, &pool, std::move(work));
}

}  // namespace quire::server
