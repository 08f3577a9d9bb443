// Serves connections: from listeners, each in a place of the table, through a session. I/O thread only.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "api/base/error.h"
#include "server/http/connection_table.h"
#include "server/http/listeners.h"
#include "server/http/session.h"
#include "server/http/tls.h"
#include "server/http/transport.h"

namespace quire::server {

class HttpServer {
 public:
  HttpServer(boost::asio::any_io_executor executor, Transport transport);
  // All sessions have ended: see WaitForSessions().
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds and starts to accept. The error names the address and the reason. Port 0 takes any free one.
  api::Result<boost::asio::ip::tcp::endpoint> Listen(const boost::asio::ip::tcp::endpoint& endpoint,
                                                     Security security = Security::kPlain) {
    return listeners_.Listen(endpoint, security);
  }
  // Listens on a Unix socket for its owner and group (mode 0660). One that a daemon left behind is replaced;
  // one that a daemon still answers, or anything else of that name, is an error.
  api::Result<void> ListenUnix(const std::filesystem::path& path) { return listeners_.ListenUnix(path); }
  // Takes a listening TCP or Unix socket over (socket activation).
  api::Result<void> Adopt(int listening_fd, Security security = Security::kPlain) {
    return listeners_.Adopt(listening_fd, security);
  }

  // The certificate for new connections of kTls listeners. REQUIRES: set before the first of
  // them.
  void SetTls(TlsContext context) { tls_ = std::move(context); }
  // From the next request on. Requests in progress of keys that are gone end: their connections are closed.
  void SetKeys(KeyRing keys);
  std::vector<AccessControl::KeyUse> KeyUses() const { return transport_.access.Uses(); }
  void SetOrigins(OriginPolicy origins) { transport_.origins = std::move(origins); }
  // From the next connection on. Not smaller than what bodies hold now.
  void SetLimits(const TransportLimits& limits);

  const std::vector<Route>& routes() const { return transport_.router.routes(); }

  // Closes the listeners; answers from now on close their connections.
  void StopAccepting();
  bool draining() const { return transport_.draining; }
  // Closes idle connections.
  void CloseIdle() { connections_.CloseIdle(); }
  // Closes every connection; handlers on cancel-on-disconnect routes are canceled.
  void AbortAll() { connections_.AbortAll(); }
  // Calls with what is known so far of every request that is being answered.
  void ForEachRequest(const std::function<void(const RequestLog&)>& visit) const;
  // True when no connection is left, false at the deadline.
  Awaitable<bool> WaitForSessions(std::chrono::steady_clock::time_point deadline);
  // Connections without a request in progress.
  size_t idle_sessions() const { return connections_.idle(); }
  size_t sessions() const { return connections_.size(); }
  uint64_t buffered_bodies_bytes() const { return transport_.bodies.held(); }
  uint64_t collected_answers_bytes() const { return transport_.answers.held(); }

 private:
  bool Admit(Connection::Socket socket, const ListenerInfo& listener);
  Awaitable<void> RunSession(Connection::Socket socket, ListenerInfo listener, Place place);
  Awaitable<bool> ShakeHands(std::shared_ptr<Connection> connection, Place place);

  boost::asio::any_io_executor executor_;
  Transport transport_;
  Listeners listeners_;
  ConnectionTable connections_;
  std::optional<TlsContext> tls_;
  boost::asio::steady_timer session_ended_;  // canceled whenever a session ends
};

}  // namespace quire::server
