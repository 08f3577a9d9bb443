// Work that may block (files, large parses) on a thread pool, awaited from the I/O thread. The work is not
// interrupted by cancellation; the coroutine goes on when it is done.
//
// Give the work as a named object: gcc 12 destroys a closure that is a temporary of an awaited expression
// twice.
#pragma once

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <type_traits>
#include <utility>

#include "server/awaitable.h"

namespace quire::server {

template <class Work>
Awaitable<std::invoke_result_t<Work&>> CallOnce(Work work) {
  co_return work();
}

template <class Work>
Awaitable<std::invoke_result_t<Work&>> RunBlocking(boost::asio::thread_pool& pool, Work work) {
  return boost::asio::co_spawn(pool.get_executor(), CallOnce(std::move(work)), boost::asio::use_awaitable);
}

}  // namespace quire::server
