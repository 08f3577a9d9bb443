#include "server/http/server.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <string_view>
#include <utility>

#include "server/http/awaitable.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::string_view kBusy =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json; charset=utf-8\r\nRetry-After: 1\r\n"
    "Connection: close\r\nContent-Length: 32\r\n\r\n{\"error\":\"too many connections\"}";

void RefuseBusy(Connection::Socket& socket, Security security) {
  error_code ignored;
  socket.non_blocking(true, ignored);
  if (security == Security::kPlain) socket.write_some(asio::buffer(kBusy.data(), kBusy.size()), ignored);
  socket.shutdown(Connection::Socket::shutdown_send, ignored);
  socket.close(ignored);
}

}  // namespace

HttpServer::HttpServer(asio::any_io_executor executor, Transport transport)
    : executor_(std::move(executor)),
      transport_(std::move(transport)),
      listeners_(executor_, {.admit =
                                 [this](Connection::Socket socket, const ListenerInfo& listener) {
                                   return Admit(std::move(socket), listener);
                                 },
                             .close_one = [this] { return connections_.CloseOldest(Place::kNormal, 0); }}),
      session_ended_(executor_) {
  transport_.make_normal_room = [this](size_t others) {
    return connections_.MakeNormalRoom(others, transport_.limits.connections);
  };
}

HttpServer::~HttpServer() = default;

void HttpServer::SetLimits(const TransportLimits& limits) {
  transport_.limits = limits;
  uint64_t& bodies = transport_.limits.buffered_bodies_bytes;
  bodies = std::max(bodies, transport_.bodies.held());
  transport_.bodies.SetLimits(transport_.limits.Bodies());
  transport_.answers.SetLimits(transport_.limits.Answers());
}

// False: it has the last place, or that of another one.
bool HttpServer::Admit(Connection::Socket socket, const ListenerInfo& listener) {
  const auto place = connections_.MakeRoom(socket, transport_.limits.connections);
  if (!place) {
    RefuseBusy(socket, listener.security);
    return true;
  }
  // It begins at once: behind this the session counts.
  asio::co_spawn(executor_, RunSession(std::move(socket), listener, *place), kEndsProcess);
  return sessions() < transport_.limits.connections;
}

Awaitable<void> HttpServer::RunSession(Connection::Socket socket, ListenerInfo listener, Place place) {
  {
    fair::Quota::Lease reserved(connections_.reserved(), {});
    reserved.SetTo(place == Place::kReserved ? 1 : 0);
    const TransportLimits& limits = transport_.limits;
    auto connection = std::make_shared<Connection>(std::move(socket), connections_.places(),
                                                   limits.write_timeout, limits.body_bytes_per_second_min);
    bool usable = true;
    if (listener.security == Security::kTls) usable = co_await ShakeHands(connection, place);
    if (usable) {
      Session session(transport_, std::move(connection), std::move(listener.bound), std::move(reserved));
      const auto entry = connections_.Add(session);
      co_await session.Run();
      connections_.Remove(entry);
    } else {
      connection->Abort();
    }
  }
  session_ended_.cancel();
}

Awaitable<bool> HttpServer::ShakeHands(std::shared_ptr<Connection> connection, Place place) {
  const auto deadline = std::chrono::steady_clock::now() + transport_.limits.header_timeout;
  const auto entry = connections_.Add({.connection = connection, .place = place});
  // A client that says nothing costs no TLS state.
  bool going = tls_.has_value();
  if (going) going = co_await connection->WaitForFirstByte(deadline);
  if (going) {
    connections_.Begin(*entry);
    going = co_await connection->StartTls(*tls_, transport_.compute, deadline);
  }
  connections_.Remove(entry);
  co_return going;
}

void HttpServer::StopAccepting() {
  transport_.draining = true;
  listeners_.Close();
}

void HttpServer::SetKeys(KeyRing keys) {
  transport_.access.Replace(std::move(keys));
  for (Session* session : connections_.sessions()) {
    const RequestLog* log = session->answering();
    if (log != nullptr && !log->key.empty() && !transport_.access.Knows(log->key))
      session->Abort("key removed");
  }
}

void HttpServer::ForEachRequest(const std::function<void(const RequestLog&)>& visit) const {
  for (const Session* session : connections_.sessions()) {
    if (const RequestLog* log = session->answering()) visit(*log);
  }
}

Awaitable<bool> HttpServer::WaitForSessions(std::chrono::steady_clock::time_point deadline) {
  while (sessions() > 0 && std::chrono::steady_clock::now() < deadline) {
    session_ended_.expires_at(deadline);
    co_await session_ended_.async_wait(kTuple);
  }
  co_return sessions() == 0;
}

}  // namespace quire::server
