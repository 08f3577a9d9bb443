#include "server/http/listeners.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstring>
#include <utility>

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

api::Result<tcp::endpoint> Listeners::Listen(const tcp::endpoint& endpoint, Security security) {
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

api::Result<void> Listeners::ListenUnix(const std::filesystem::path& path) {
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

api::Result<void> Listeners::Adopt(int listening_fd, Security security) {
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

void Listeners::Start(std::shared_ptr<Acceptor> acceptor, ListenerInfo listener) {
  error_code ignored;  // a failure shows in the first accept
  acceptor->non_blocking(true, ignored);
  // Else Asio would wait on this thread for the next connection.
  acceptor->set_option(asio::socket_base::enable_connection_aborted(true), ignored);
  acceptors_.push_back(acceptor);
  asio::co_spawn(executor_, Accept(std::move(acceptor), std::move(listener)), kEndsProcess);
}

void Listeners::WarnOfFailedAccept(const std::string& reason) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_warning_) return;
  next_warning_ = now + kAcceptWarningInterval;
  spdlog::warn("accept failed: {}", reason);
}

// Nothing but Close() ends it.
Awaitable<void> Listeners::Accept(std::shared_ptr<Acceptor> acceptor, ListenerInfo listener) {
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

// It and those that wait behind it, until one takes the place of another: the next one would take its place,
// before anything of it was read. Why there are no more; nothing: there may be.
error_code Listeners::AdmitWaiting(Connection::Socket socket, Acceptor& acceptor,
                                   const ListenerInfo& listener) {
  error_code ec;
  for (int others = kAcceptedTogether - 1; !ec; --others) {
    const bool more = owner_.admit(std::move(socket), listener);
    if (others == 0 || !more) break;
    socket = acceptor.accept(ec);
  }
  return ec;
}

// False: only after a pause.
bool Listeners::AcceptsAgain(const error_code& ec) {
  if (!ec || ec == asio::error::would_block || ec == asio::error::operation_aborted ||
      ec == asio::error::connection_aborted || ec == std::errc::protocol_error) {
    return true;
  }
  // The connection stays in the listener's queue; with the descriptor of another one it is accepted at once.
  WarnOfFailedAccept(ec.message());
  const bool exhausted = ec == asio::error::no_descriptors ||
                         ec == std::errc::too_many_files_open_in_system ||
                         ec == asio::error::no_buffer_space || ec == asio::error::no_memory;
  return exhausted && owner_.close_one();
}

void Listeners::Close() {
  for (const auto& acceptor : acceptors_) {
    error_code ignored;
    acceptor->close(ignored);
  }
  acceptors_.clear();
  for (const auto& path : std::exchange(unix_paths_, {})) ::unlink(path.c_str());
}

}  // namespace quire::server
