// Listens, accepts and keeps the sessions. I/O thread only.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "api/error.h"
#include "server/session.h"
#include "server/transport.h"

namespace quire::server {

// "127.0.0.1:11434", "[::1]:11434"
std::string Describe(const boost::asio::ip::tcp::endpoint& endpoint);
// Where an inherited socket listens. Errors: it is not a TCP socket.
api::Result<boost::asio::ip::tcp::endpoint> ListeningAddress(int listening_fd);

class HttpServer {
 public:
  HttpServer(boost::asio::any_io_executor executor, Transport transport);
  // All sessions have ended: see WaitForSessions().
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds and starts to accept. The error names the address and the reason. Port 0 takes any free one.
  api::Result<boost::asio::ip::tcp::endpoint> Listen(const boost::asio::ip::tcp::endpoint& endpoint);
  // Takes a listening TCP socket over (socket activation).
  api::Result<boost::asio::ip::tcp::endpoint> Adopt(int listening_fd);

  // Closes the listeners; answers from now on close their connections.
  void StopAccepting();
  bool draining() const { return transport_.draining; }
  // Closes connections that are answering nothing.
  void CloseWaiting();
  // Closes every connection; handlers on watched routes are cancelled.
  void AbortAll();
  // True when no connection is left, false at the deadline.
  Awaitable<bool> WaitForSessions(std::chrono::steady_clock::time_point deadline);
  size_t sessions() const { return sessions_.size(); }

 private:
  using Acceptor = boost::asio::ip::tcp::acceptor;

  void Start(std::shared_ptr<Acceptor> acceptor, const boost::asio::ip::tcp::endpoint& bound);
  Awaitable<void> Accept(std::shared_ptr<Acceptor> acceptor, boost::asio::ip::address bound);
  Awaitable<void> RunSession(boost::asio::ip::tcp::socket socket, boost::asio::ip::address bound);
  bool MakeRoom();

  boost::asio::any_io_executor executor_;
  Transport transport_;
  std::vector<std::shared_ptr<Acceptor>> acceptors_;
  std::list<Session*> sessions_;
  boost::asio::steady_timer session_ended_;  // cancelled whenever a session ends
};

}  // namespace quire::server
