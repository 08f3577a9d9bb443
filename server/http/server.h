// Listens, accepts and keeps the sessions. I/O thread only.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "api/base/fair/quota.h"
#include "server/http/session.h"
#include "server/http/tls.h"
#include "server/http/transport.h"

namespace quire::server {

// "127.0.0.1:11434", "[::1]:11434"
std::string Describe(const boost::asio::ip::tcp::endpoint& endpoint);
// Where an inherited socket listens; nothing for a Unix socket. Errors: it is neither that nor a TCP socket.
api::Result<std::optional<boost::asio::ip::tcp::endpoint>> ListeningAddress(int listening_fd);

enum class Security : uint8_t { kPlain, kTls };

class HttpServer {
 public:
  HttpServer(boost::asio::any_io_executor executor, Transport transport);
  // All sessions have ended: see WaitForSessions().
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds and starts to accept. The error names the address and the reason. Port 0 takes any free one.
  api::Result<boost::asio::ip::tcp::endpoint> Listen(const boost::asio::ip::tcp::endpoint& endpoint,
                                                     Security security = Security::kPlain);
  // Listens on a Unix socket for its owner and group (mode 0660). One that a daemon left behind is replaced;
  // one that a daemon still answers, or anything else of that name, is an error.
  api::Result<void> ListenUnix(const std::filesystem::path& path);
  // Takes a listening TCP or Unix socket over (socket activation).
  api::Result<void> Adopt(int listening_fd, Security security = Security::kPlain);

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
  void CloseIdle();
  // Closes every connection; handlers on cancel-on-disconnect routes are canceled.
  void AbortAll();
  // Calls with what is known so far of every request that is being answered.
  void ForEachRequest(const std::function<void(const RequestLog&)>& visit) const;
  // True when no connection is left, false at the deadline.
  Awaitable<bool> WaitForSessions(std::chrono::steady_clock::time_point deadline);
  // Connections without a request in progress.
  size_t idle_sessions() const;
  size_t sessions() const { return sessions_.size() + handshakes_.size(); }
  uint64_t buffered_bodies_bytes() const { return transport_.bodies.held(); }
  uint64_t collected_answers_bytes() const { return transport_.answers.held(); }

 private:
  using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;
  struct ListenerInfo {
    std::optional<boost::asio::ip::address> bound;  // nothing: a Unix socket
    Security security = Security::kPlain;
  };

  struct Handshake {
    std::shared_ptr<Connection> connection;
    Place place = Place::kNormal;
    bool begun = false;  // the client has sent something
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  };

  void Start(std::shared_ptr<Acceptor> acceptor, ListenerInfo listener);
  void WarnOfFailedAccept(const std::string& reason);
  Awaitable<void> Accept(std::shared_ptr<Acceptor> acceptor, ListenerInfo listener);
  boost::system::error_code AdmitWaiting(Connection::Socket socket, Acceptor& acceptor,
                                         const ListenerInfo& listener);
  bool AcceptsAgain(const boost::system::error_code& ec);
  void Admit(Connection::Socket socket, const ListenerInfo& listener);
  Awaitable<void> RunSession(Connection::Socket socket, ListenerInfo listener, Place place);
  Awaitable<bool> ShakeHands(Handshake& handshake);
  void LimitHandshakes();
  Awaitable<void> Serve(std::shared_ptr<Connection> connection, ListenerInfo listener, Place place);
  std::optional<Place> MakeRoom(Connection::Socket& socket);
  // One of both.
  struct Replaceable {
    Session* session = nullptr;
    Handshake* handshake = nullptr;
    Idleness idleness;  // when it was listed
  };
  static std::optional<Idleness> IdlenessOf(const Handshake& handshake);
  void ListReplaceable(Place place, std::chrono::steady_clock::time_point now);
  bool CloseOldest(Place place, size_t party_connections);

  boost::asio::any_io_executor executor_;
  Transport transport_;
  std::optional<TlsContext> tls_;
  std::vector<std::shared_ptr<Acceptor>> acceptors_;
  fair::Quota connections_;  // each holds one; MakeRoom() has their bound
  std::list<Session*> sessions_;
  std::list<Handshake> handshakes_;       // TLS connections that are not sessions yet, oldest first
  std::vector<Replaceable> replaceable_;  // of one place, the next one last; all are there
  Place replaceable_place_ = Place::kNormal;
  bool listed_none_ = true;
  std::chrono::steady_clock::time_point listed_at_ = {};
  fair::Quota reserved_;  // each in a reserved place holds one; MakeRoom() has their bound
  std::chrono::steady_clock::time_point next_warning_ = {};  // of failed accepts
  std::vector<std::filesystem::path> unix_paths_;            // of sockets made here
  boost::asio::steady_timer session_ended_;                  // canceled whenever a session ends
};

}  // namespace quire::server
