#include "server/http_server.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstring>
#include <utility>

namespace quire::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kAcceptPause(100);  // after a failed accept (out of file descriptors)
constexpr std::string_view kBusy =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json; charset=utf-8\r\nRetry-After: 1\r\n"
    "Connection: close\r\nContent-Length: 32\r\n\r\n{\"error\":\"too many connections\"}";

void RefuseBusy(tcp::socket& socket) {
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(kBusy.data(), kBusy.size()), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
  socket.close(ignored);
}

}  // namespace

std::string Describe(const tcp::endpoint& endpoint) {
  const bool v6 = endpoint.address().is_v6();
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", endpoint.address().to_string(), v6 ? "]" : "",
                     endpoint.port());
}

api::Result<tcp::endpoint> ListeningAddress(int listening_fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(listening_fd, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      (address.ss_family != AF_INET && address.ss_family != AF_INET6)) {
    return api::Fail(api::ErrorCode::kUnavailable, "the inherited socket is not a TCP socket");
  }
  tcp::endpoint endpoint;
  endpoint.resize(length);
  std::memcpy(endpoint.data(), &address, length);
  return endpoint;
}

HttpServer::HttpServer(asio::any_io_executor executor, Transport transport)
    : executor_(std::move(executor)), transport_(std::move(transport)), session_ended_(executor_) {}

HttpServer::~HttpServer() = default;

api::Result<tcp::endpoint> HttpServer::Listen(const tcp::endpoint& endpoint) {
  auto acceptor = std::make_shared<Acceptor>(executor_);
  error_code ec;
  acceptor->open(endpoint.protocol(), ec);
  if (!ec) acceptor->set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor->bind(endpoint, ec);
  if (!ec) acceptor->listen(asio::socket_base::max_listen_connections, ec);
  if (ec) {
    const std::string reason =
        ec == asio::error::address_in_use ? "the port is in use by another program" : ec.message();
    return api::Fail(api::ErrorCode::kUnavailable,
                     fmt::format("cannot listen on {}: {}", Describe(endpoint), reason));
  }
  const tcp::endpoint bound = acceptor->local_endpoint(ec);
  Start(std::move(acceptor), bound);
  return bound;
}

api::Result<tcp::endpoint> HttpServer::Adopt(int listening_fd) {
  const auto bound = ListeningAddress(listening_fd);
  if (!bound) return bound;
  auto acceptor = std::make_shared<Acceptor>(executor_);
  error_code ec;
  acceptor->assign(bound->protocol(), listening_fd, ec);
  if (ec) return api::Fail(api::ErrorCode::kUnavailable, "cannot use the inherited socket: " + ec.message());
  Start(std::move(acceptor), *bound);
  return bound;
}

void HttpServer::Start(std::shared_ptr<Acceptor> acceptor, const tcp::endpoint& bound) {
  acceptors_.push_back(acceptor);
  asio::co_spawn(executor_, Accept(std::move(acceptor), bound.address()), asio::detached);
}

// Makes room by closing the connection that has waited longest without a whole request: connections opened
// only to be held cannot keep others out.
bool HttpServer::MakeRoom() {
  if (sessions_.size() < transport_.limits.connections) return true;
  Session* oldest = nullptr;
  for (Session* session : sessions_) {
    if (session->waiting() && (oldest == nullptr || session->waiting_since() < oldest->waiting_since())) {
      oldest = session;
    }
  }
  if (oldest == nullptr) return false;
  oldest->Abort();
  return true;
}

Awaitable<void> HttpServer::Accept(std::shared_ptr<Acceptor> acceptor, asio::ip::address bound) {
  asio::steady_timer pause(executor_);
  while (acceptor->is_open()) {
    auto [ec, socket] = co_await acceptor->async_accept(kTuple);
    if (ec == asio::error::operation_aborted) co_return;
    if (ec) {
      if (ec != asio::error::connection_aborted) {
        spdlog::warn("accept failed: {}", ec.message());
        pause.expires_after(kAcceptPause);
        co_await pause.async_wait(kTuple);
      }
    } else if (!MakeRoom()) {
      RefuseBusy(socket);
    } else {
      asio::co_spawn(executor_, RunSession(std::move(socket), bound), asio::detached);
    }
  }
}

Awaitable<void> HttpServer::RunSession(tcp::socket socket, asio::ip::address bound) {
  auto connection = std::make_shared<Connection>(std::move(socket), transport_.limits.write_timeout);
  Session session(transport_, std::move(connection), std::move(bound));
  const auto place = sessions_.insert(sessions_.end(), &session);
  try {
    co_await session.Run();
  } catch (const std::exception& error) {
    spdlog::error("connection failed: {}", error.what());
  }
  sessions_.erase(place);
  session_ended_.cancel();
}

void HttpServer::StopAccepting() {
  transport_.draining = true;
  for (const auto& acceptor : acceptors_) {
    error_code ignored;
    acceptor->close(ignored);
  }
  acceptors_.clear();
}

void HttpServer::CloseWaiting() {
  for (Session* session : sessions_) {
    if (session->waiting()) session->Abort();
  }
}

void HttpServer::AbortAll() {
  for (Session* session : sessions_) session->Abort();
}

Awaitable<bool> HttpServer::WaitForSessions(std::chrono::steady_clock::time_point deadline) {
  while (!sessions_.empty() && std::chrono::steady_clock::now() < deadline) {
    session_ended_.expires_at(deadline);
    co_await session_ended_.async_wait(kTuple);
  }
  co_return sessions_.empty();
}

}  // namespace quire::server
