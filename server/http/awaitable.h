// The coroutine type of the I/O thread.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>

namespace quire::server {

template <class T>
using Awaitable = boost::asio::awaitable<T>;

// Awaits give the error code as the first value instead of throwing it.
inline constexpr auto kTuple = boost::asio::as_tuple(boost::asio::use_awaitable);

// For co_spawn() of what belongs to no request: what it throws ends the process.
inline constexpr auto kEndsProcess = [](const std::exception_ptr& thrown) noexcept {
  if (thrown) std::rethrow_exception(thrown);
};

}  // namespace quire::server
