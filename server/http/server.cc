#include "server/http/server.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cstring>
#include <utility>

#include "server/http/awaitable.h"
#include "server/http/party.h"
#include "server/http/replacement.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// After a failed accept (out of file descriptors): the first pause, each twice the last, and the longest.
constexpr std::chrono::milliseconds kAcceptPause(50);
constexpr std::chrono::milliseconds kAcceptPauseMax(1000);
constexpr std::chrono::seconds kAcceptWarningInterval(10);
// Those that wait, in one turn of the I/O thread: accepted one at a time, each would wait for all else that
// is ready.
constexpr int kAcceptedTogether = 16;
constexpr size_t kReservedPlaces = 8;   // beyond the limit of connections
constexpr size_t kHandshakesMax = 512;  // at once; each holds about 100 KiB
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

std::unexpected<api::Error> CannotListen(const std::string& where, const std::string& why) {
  return api::Fail(api::ErrorCode::kUnavailable, fmt::format("cannot listen on {}: {}", where, why));
}

// Removes the socket that a daemon which is gone left at `path`. Nothing, or why the path cannot be used.
std::optional<std::string> ClearUnixPath(const std::filesystem::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return std::nullopt;
  if (!S_ISSOCK(status.st_mode)) return "the path exists and is not a socket";
  asio::io_context io;
  asio::local::stream_protocol::socket probe(io);
  error_code ec;
  probe.connect(asio::local::stream_protocol::endpoint(path.string()), ec);
  if (!ec) return "another program is listening on it";
  ::unlink(path.c_str());
  return std::nullopt;
}

// What a party may have given up since it had as many connections.
bool IsAbout(size_t before, size_t now) { return now + before / 16 >= before; }

}  // namespace

std::string Describe(const tcp::endpoint& endpoint) {
  const bool v6 = endpoint.address().is_v6();
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", endpoint.address().to_string(), v6 ? "]" : "",
                     endpoint.port());
}

api::Result<std::optional<tcp::endpoint>> ListeningAddress(int listening_fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  const bool known = ::getsockname(listening_fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  if (known && address.ss_family == AF_UNIX) return std::nullopt;
  if (!known || (address.ss_family != AF_INET && address.ss_family != AF_INET6)) {
    return api::Fail(api::ErrorCode::kUnavailable, "the inherited socket is neither a TCP nor a Unix socket");
  }
  tcp::endpoint endpoint;
  endpoint.resize(length);
  std::memcpy(endpoint.data(), &address, length);
  return endpoint;
}

HttpServer::HttpServer(asio::any_io_executor executor, Transport transport)
    : executor_(std::move(executor)), transport_(std::move(transport)), session_ended_(executor_) {}

HttpServer::~HttpServer() = default;

api::Result<tcp::endpoint> HttpServer::Listen(const tcp::endpoint& endpoint, Security security) {
  auto acceptor = std::make_shared<Acceptor>(executor_);
  error_code ec;
  acceptor->open(endpoint.protocol(), ec);
  if (!ec) acceptor->set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor->bind(endpoint, ec);
  if (!ec) acceptor->listen(asio::socket_base::max_listen_connections, ec);
  if (ec) {
    const std::string reason =
        ec == asio::error::address_in_use ? "the port is in use by another program" : ec.message();
    return CannotListen(Describe(endpoint), reason);
  }
  const auto bound = ListeningAddress(acceptor->native_handle());
  if (!bound) return std::unexpected(bound.error());
  Start(std::move(acceptor), {(*bound)->address(), security});
  return **bound;
}

api::Result<void> HttpServer::ListenUnix(const std::filesystem::path& path) {
  if (const auto obstacle = ClearUnixPath(path)) return CannotListen(path.string(), *obstacle);
  auto acceptor = std::make_shared<Acceptor>(executor_);
  error_code ec;
  const asio::local::stream_protocol::endpoint endpoint(path.string());
  const mode_t before = ::umask(0117);  // the socket has its mode from its first moment on
  acceptor->open(endpoint.protocol(), ec);
  if (!ec) acceptor->bind(endpoint, ec);
  ::umask(before);
  if (!ec) acceptor->listen(asio::socket_base::max_listen_connections, ec);
  if (ec) return CannotListen(path.string(), ec.message());
  unix_paths_.push_back(path);
  Start(std::move(acceptor), {});
  return {};
}

api::Result<void> HttpServer::Adopt(int listening_fd, Security security) {
  const auto bound = ListeningAddress(listening_fd);
  if (!bound) return std::unexpected(bound.error());
  auto acceptor = std::make_shared<Acceptor>(executor_);
  error_code ec;
  const asio::generic::stream_protocol protocol(*bound ? (*bound)->protocol().family() : AF_UNIX, 0);
  acceptor->assign(protocol, listening_fd, ec);
  if (ec) return api::Fail(api::ErrorCode::kUnavailable, "cannot use the inherited socket: " + ec.message());
  Start(std::move(acceptor), *bound ? ListenerInfo{(*bound)->address(), security} : ListenerInfo{});
  return {};
}

void HttpServer::SetLimits(const TransportLimits& limits) {
  transport_.limits = limits;
  uint64_t& bodies = transport_.limits.buffered_bodies_bytes;
  bodies = std::max(bodies, transport_.bodies.held());
  transport_.bodies.SetLimits(transport_.limits.Bodies());
  transport_.answers.SetLimits(transport_.limits.Answers());
}

void HttpServer::Start(std::shared_ptr<Acceptor> acceptor, ListenerInfo listener) {
  error_code ignored;  // a failure shows in the first accept
  acceptor->non_blocking(true, ignored);
  // Else Asio would wait on this thread for the next connection.
  acceptor->set_option(asio::socket_base::enable_connection_aborted(true), ignored);
  acceptors_.push_back(acceptor);
  asio::co_spawn(executor_, Accept(std::move(acceptor), std::move(listener)), kEndsProcess);
}

// Counts a connection in a reserved place.
// Which connections may be replaced next, the best last: those that are about like the first one, so that
// none that comes meanwhile goes before them. A flood of new ones would else look at all for each of them.
void HttpServer::ListReplaceable(Place place, std::chrono::steady_clock::time_point now) {
  constexpr size_t kListed = 64;
  replaceable_.clear();
  replaceable_place_ = place;
  listed_at_ = now;
  for (Handshake& candidate : handshakes_) {
    if (candidate.place != place) continue;
    if (const auto idleness = IdlenessOf(candidate)) replaceable_.push_back({nullptr, &candidate, *idleness});
  }
  for (Session* candidate : sessions_) {
    if (candidate->place() != place) continue;
    if (const auto idleness = candidate->IdlenessAt(now))
      replaceable_.push_back({candidate, nullptr, *idleness});
  }
  const auto first = [now](const Replaceable& one, const Replaceable& other) {
    return ReplacedBefore(one.idleness, other.idleness, now);
  };
  const size_t listed = std::min(kListed, replaceable_.size());
  std::ranges::partial_sort(replaceable_, replaceable_.begin() + static_cast<std::ptrdiff_t>(listed), first);
  replaceable_.resize(listed);
  const auto other = std::ranges::find_if_not(replaceable_, [this](const Replaceable& one) {
    const Idleness& best = replaceable_.front().idleness;
    return one.idleness.stage == best.stage &&
           IsAbout(best.party_connections, one.idleness.party_connections);
  });
  replaceable_.erase(other, replaceable_.end());
  std::ranges::reverse(replaceable_);
  listed_none_ = replaceable_.empty();
}

std::optional<Idleness> HttpServer::IdlenessOf(const Handshake& handshake) {
  if (handshake.connection->gone()) return std::nullopt;
  return Idleness{Idleness::Stage::kBeforeRequest, handshake.since,
                  handshake.connection->party_connections()};
}

// Closes the connection that a new one replaces, whose party has `party_connections` without it. False: there
// is none.
bool HttpServer::CloseOldest(Place place, size_t party_connections) {
  constexpr auto kListedFor = std::chrono::milliseconds(5);
  const auto now = std::chrono::steady_clock::now();
  bool is_new = false;
  const auto list = [&] {
    ListReplaceable(place, now);
    is_new = true;
  };
  if (now - listed_at_ > kListedFor || place != replaceable_place_) list();
  while (true) {
    if (replaceable_.empty()) {
      if (is_new || listed_none_) return false;
      list();
      continue;
    }
    const Replaceable one = replaceable_.back();
    const auto idleness = one.session != nullptr ? one.session->IdlenessAt(now) : IdlenessOf(*one.handshake);
    // Where its party has given up others meanwhile one with more may be next, and so may that of the new
    // one.
    const bool is_next = idleness && IsAbout(one.idleness.party_connections, idleness->party_connections);
    if (!is_next) {
      replaceable_.pop_back();
      continue;
    }
    if (!is_new && !IsAbout(party_connections, idleness->party_connections)) {
      list();
      continue;
    }
    if (!MayReplace(party_connections, *idleness, now)) return false;
    replaceable_.pop_back();
    if (one.session != nullptr) {
      one.session->Abort("replaced");
    } else {
      one.handshake->connection->Abort();
    }
    return true;
  }
}

// The place of a new connection. Connections opened only to be held cannot keep others out, and while every
// place has a request, the reserved ones still say that the server lives.
std::optional<Place> HttpServer::MakeRoom(Connection::Socket& socket) {
  if (sessions() < transport_.limits.connections + reserved_.held()) return Place::kNormal;
  const size_t others = connections_.HoldingOf(PartyOf({}, Connection::PeerOf(socket)));
  if (CloseOldest(Place::kNormal, others)) return Place::kNormal;
  if (reserved_.held() < kReservedPlaces || CloseOldest(Place::kReserved, 0)) return Place::kReserved;
  return std::nullopt;
}

void HttpServer::WarnOfFailedAccept(const std::string& reason) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_warning_) return;
  next_warning_ = now + kAcceptWarningInterval;
  spdlog::warn("accept failed: {}", reason);
}

// Nothing but StopAccepting() ends it.
Awaitable<void> HttpServer::Accept(std::shared_ptr<Acceptor> acceptor, ListenerInfo listener) {
  asio::steady_timer pause(executor_);
  auto pause_time = kAcceptPause;
  while (acceptor->is_open()) {
    auto [ec, socket] = co_await acceptor->async_accept(kTuple);
    if (!ec) {
      pause_time = kAcceptPause;
      ec = AdmitWaiting(std::move(socket), *acceptor, listener);
    }
    if (!acceptor->is_open() || AcceptsAgain(ec)) continue;
    pause.expires_after(pause_time);
    co_await pause.async_wait(kTuple);
    pause_time = std::min(2 * pause_time, kAcceptPauseMax);
  }
}

// It and those that wait behind it, while each has its place at once. Why there are no more; nothing: there
// may be.
error_code HttpServer::AdmitWaiting(Connection::Socket socket, Acceptor& acceptor,
                                    const ListenerInfo& listener) {
  error_code ec;
  for (int others = kAcceptedTogether - 1; !ec; --others) {
    const size_t before = sessions();
    Admit(std::move(socket), listener);
    if (others == 0 || sessions() == before || sessions() >= transport_.limits.connections) break;
    socket = acceptor.accept(ec);
  }
  return ec;
}

// False: only after a pause.
bool HttpServer::AcceptsAgain(const error_code& ec) {
  if (!ec || ec == asio::error::would_block || ec == asio::error::operation_aborted ||
      ec == asio::error::connection_aborted || ec == std::errc::protocol_error) {
    return true;
  }
  // The connection stays in the listener's queue; with the descriptor of another one it is accepted at once.
  WarnOfFailedAccept(ec.message());
  const bool exhausted = ec == asio::error::no_descriptors ||
                         ec == std::errc::too_many_files_open_in_system ||
                         ec == asio::error::no_buffer_space || ec == asio::error::no_memory;
  return exhausted && CloseOldest(Place::kNormal, 0);
}

void HttpServer::Admit(Connection::Socket socket, const ListenerInfo& listener) {
  const auto place = MakeRoom(socket);
  if (!place) {
    RefuseBusy(socket, listener.security);
    return;
  }
  // It begins at once: behind this the session counts.
  asio::co_spawn(executor_, RunSession(std::move(socket), listener, *place), kEndsProcess);
}

Awaitable<void> HttpServer::RunSession(Connection::Socket socket, ListenerInfo listener, Place place) {
  {
    fair::Quota::Lease reserved(reserved_, {});
    reserved.SetTo(place == Place::kReserved ? 1 : 0);
    const TransportLimits& limits = transport_.limits;
    auto connection = std::make_shared<Connection>(std::move(socket), connections_, limits.write_timeout,
                                                   limits.body_bytes_per_second_min);
    bool usable = true;
    if (listener.security == Security::kTls) {
      const auto entry = handshakes_.insert(handshakes_.end(), {.connection = connection, .place = place});
      usable = co_await ShakeHands(*entry);
      std::erase_if(replaceable_, [&](const Replaceable& one) { return one.handshake == &*entry; });
      handshakes_.erase(entry);
    }
    if (usable) {
      co_await Serve(std::move(connection), std::move(listener), place);
    } else {
      connection->Abort();
    }
  }
  session_ended_.cancel();
}

// A client that says nothing costs no TLS state.
Awaitable<bool> HttpServer::ShakeHands(Handshake& handshake) {
  if (!tls_) co_return false;
  const auto deadline = std::chrono::steady_clock::now() + transport_.limits.header_timeout;
  const bool begun = co_await handshake.connection->WaitForFirstByte(deadline);
  if (!begun) co_return false;
  handshake.begun = true;
  LimitHandshakes();
  const bool done = co_await handshake.connection->StartTls(*tls_, transport_.compute, deadline);
  co_return done;
}

// Closes the oldest of the party with the most connections.
void HttpServer::LimitHandshakes() {
  size_t begun = 0;
  Handshake* closed = nullptr;
  for (Handshake& handshake : handshakes_) {
    const Connection& connection = *handshake.connection;
    if (!handshake.begun || connection.gone()) continue;
    ++begun;
    if (closed == nullptr || connection.party_connections() > closed->connection->party_connections()) {
      closed = &handshake;
    }
  }
  if (begun > kHandshakesMax) closed->connection->Abort();
}

Awaitable<void> HttpServer::Serve(std::shared_ptr<Connection> connection, ListenerInfo listener,
                                  Place place) {
  Session session(transport_, std::move(connection), std::move(listener.bound), place);
  const auto entry = sessions_.insert(sessions_.end(), &session);
  co_await session.Run();
  std::erase_if(replaceable_, [&session](const Replaceable& one) { return one.session == &session; });
  sessions_.erase(entry);
}

void HttpServer::StopAccepting() {
  transport_.draining = true;
  for (const auto& acceptor : acceptors_) {
    error_code ignored;
    acceptor->close(ignored);
  }
  acceptors_.clear();
  for (const auto& path : std::exchange(unix_paths_, {})) ::unlink(path.c_str());
}

void HttpServer::CloseIdle() {
  for (const Handshake& handshake : handshakes_) handshake.connection->Abort();
  for (Session* session : sessions_) {
    if (session->idle()) session->Abort();
  }
}

void HttpServer::AbortAll() {
  for (const Handshake& handshake : handshakes_) handshake.connection->Abort();
  for (Session* session : sessions_) session->Abort();
}

void HttpServer::SetKeys(KeyRing keys) {
  transport_.access.Replace(std::move(keys));
  for (Session* session : sessions_) {
    const RequestLog* log = session->answering();
    if (log != nullptr && !log->key.empty() && !transport_.access.Knows(log->key))
      session->Abort("key removed");
  }
}

size_t HttpServer::idle_sessions() const {
  const auto idle = std::ranges::count_if(sessions_, [](const Session* session) { return session->idle(); });
  return static_cast<size_t>(idle) + handshakes_.size();
}

void HttpServer::ForEachRequest(const std::function<void(const RequestLog&)>& visit) const {
  for (const Session* session : sessions_) {
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
