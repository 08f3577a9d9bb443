// A real HttpServer on a free loopback port with its I/O thread, for tests.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/http/server.h"

namespace quire::server::testing {

class TestServer {
 public:
  // Routes: GET /json?BYTES (a JSON text of that size), GET /hello, GET /open (the same, as health), GET
  // /models/<rest>, POST /echo, POST /stream (the body's lines, one piece each), POST /upload (a streamed
  // body: its first piece, then waits until Release()), POST /throw, POST /silent (answers nothing), and the
  // cancel-on-disconnect POST /hold, /flood, /trickle that wait until Release() or the client's end.
  explicit TestServer(TransportLimits limits = {}, const std::vector<std::string>& origins = {});
  ~TestServer();

  uint16_t port() const { return port_; }
  // Listens with TLS, too. The port.
  uint16_t ListenTls(const TlsContext& context);
  HttpServer& server() { return *server_; }
  boost::asio::any_io_executor executor() { return io_.get_executor(); }

  // Runs on the I/O thread; returns when it has run.
  void OnIoThread(std::function<void()> action);
  // Lets the waiting handlers answer, and replies be compressed.
  void Release();
  // The next replies are compressed after Release().
  void DelayCompression() {
    OnIoThread([this] { compression_waits_ = true; });
  }
  // Waits until a handler of /hold, /flood or /trickle runs, and for its end. True: it was canceled.
  void WaitEntered() { entered_.get_future().wait(); }
  bool WaitCancelled() { return cancel_seen_.get_future().get(); }
  uint64_t flooded_bytes() const { return flooded_bytes_; }
  // Waits until no connection is left: what was logged of each request, in the order of their ends.
  std::vector<RequestLog> WaitForLogs();
  // Another round of WaitEntered() and WaitCancelled().
  void Rearm();

 private:
  void AddRoutes(Router& router);
  Awaitable<void> Echo(Exchange& exchange);
  Awaitable<void> Stream(Exchange& exchange);
  Awaitable<void> Upload(Exchange& exchange);
  Awaitable<void> WaitForRelease(Exchange& exchange);
  Awaitable<void> Flood(Exchange& exchange);
  Awaitable<void> Trickle(Exchange& exchange);
  Awaitable<void> Compute(const std::function<void()>& step);
  class Presence;

  boost::asio::io_context io_{1};
  // Keeps the I/O thread when listeners and sessions are gone, until the destructor lets it end.
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{io_.get_executor()};
  boost::asio::steady_timer released_;
  bool compression_waits_ = false;  // the I/O thread's
  std::promise<void> entered_;
  std::promise<bool> cancel_seen_;
  std::atomic<uint64_t> flooded_bytes_ = 0;
  std::vector<RequestLog> logs_;  // the I/O thread's
  std::unique_ptr<HttpServer> server_;
  uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace quire::server::testing
