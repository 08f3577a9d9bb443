// The coroutine type of the I/O thread.
#pragma once

#include <boost/asio/awaitable.hpp>

namespace quire::server {

template <class T>
using Awaitable = boost::asio::awaitable<T>;

}  // namespace quire::server
