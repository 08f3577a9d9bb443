// The I/O thread's io_context.
#pragma once

#include <boost/asio/io_context.hpp>

namespace quire::server {

class IoContext : public boost::asio::io_context {
 public:
  IoContext() : boost::asio::io_context(1) {}
  // Destroys all coroutines and handlers that still wait, before what they refer to is gone.
  // REQUIRES: nothing runs in it, and nothing will.
  void DestroyWaiting() { shutdown(); }
};

}  // namespace quire::server
