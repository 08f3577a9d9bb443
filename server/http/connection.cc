#include "server/http/connection.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "server/http/awaitable.h"
#include "server/http/party.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Input kept for later requests while one is being answered.
constexpr size_t kReadAheadBytesMax = size_t{64} << 10;
// How much and how long a closing connection still reads beyond what its client announced, so that its last
// reply is not lost to a reset: a client may send a whole upload before it reads that the upload is refused.
constexpr size_t kLingerBytesMax = size_t{128} << 20;
constexpr std::chrono::seconds kLingerTime(30);
constexpr std::chrono::seconds kLingerSilence(5);  // at most between two pieces
constexpr size_t kDroppedPieceBytes = size_t{64} << 10;
constexpr int kReadsAtOnce = 64;
// Bytes that the kernel takes beyond those that it could send. Its own bound is megabytes: an answer would
// run far ahead of a client that does not read, and keep its place for as long.
constexpr int kUnsentBytesMax = 16 << 10;
constexpr std::chrono::seconds kTlsShutdownTime(2);
constexpr std::string_view kOutOfMemory =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json; charset=utf-8\r\nRetry-After: 1\r\n"
    "Connection: close\r\nContent-Length: 25\r\n\r\n{\"error\":\"out of memory\"}";

std::string UnixPeerName(int fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return "unix";
  return fmt::format("unix:{}", peer.uid);
}

// Drops what has come, up to 4 MiB. With MSG_TRUNC the kernel copies nothing out of a TCP socket.
IoResult DropReceived(int fd) {
  std::array<char, kDroppedPieceBytes> unused;
  IoResult dropped;
  for (int reads = 0; reads < kReadsAtOnce; ++reads) {
    const ssize_t got = ::recv(fd, unused.data(), unused.size(), MSG_TRUNC | MSG_DONTWAIT);
    if (got == 0) dropped.error = asio::error::eof;
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
      dropped.error = error_code(errno, boost::system::system_category());
    }
    if (got <= 0) break;
    dropped.bytes += static_cast<size_t>(got);
  }
  return dropped;
}

}  // namespace

Connection::Connection(Socket&& socket, fair::Quota& connections, std::chrono::nanoseconds write_timeout,
                       uint64_t bytes_per_second_min)
    : peer_(PeerOf(socket)),
      connections_(connections),
      own_(connections, PartyOf({}, peer_)),
      socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      write_timeout_(write_timeout),
      bytes_per_second_min_(bytes_per_second_min),
      write_lag_(bytes_per_second_min) {
  own_.GrowTo(1);
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);  // a Unix socket has none and needs none
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytesMax,
               sizeof(kUnsentBytesMax));
}

std::string Connection::PeerOf(Socket& socket) {
  error_code ec;
  const auto endpoint = socket.remote_endpoint(ec);
  if (ec) return "unknown";
  if (endpoint.protocol().family() == AF_UNIX) return UnixPeerName(socket.native_handle());
  tcp::endpoint peer;
  if (endpoint.size() > peer.capacity()) return "unknown";
  peer.resize(endpoint.size());
  std::memcpy(peer.data(), endpoint.data(), endpoint.size());
  const bool v6 = peer.address().is_v6();
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", peer.address().to_string(), v6 ? "]" : "", peer.port());
}

Connection::~Connection() = default;

Awaitable<bool> Connection::WaitForFirstByte(Clock::time_point deadline) {
  Arm(deadline);
  const auto [ec] = co_await socket_.async_wait(Socket::wait_read, kTuple);
  Disarm();
  co_return !ec && !gone_;
}

Awaitable<bool> Connection::StartTls(const TlsContext& context, const ComputeStep& compute,
                                     Clock::time_point deadline) {
  tls_ = std::make_unique<TlsStream>(socket_, context);
  Arm(deadline);
  fair::PartyId party = own_.party();
  const bool done = co_await tls_->Handshake(compute, std::move(party));
  Disarm();
  if (!done) gone_ = true;
  co_return done;
}

Awaitable<IoResult> Connection::ReadSome() {
  if (tls_) co_return co_await tls_->ReadSome(scratch_.data(), scratch_.size());
  const auto [ec, bytes] = co_await socket_.async_read_some(asio::buffer(scratch_), kTuple);
  co_return IoResult{ec, bytes};
}

Awaitable<IoResult> Connection::WriteSome(std::string_view bytes) {
  if (tls_) co_return co_await tls_->WriteSome(bytes);
  const auto [ec, sent] = co_await socket_.async_write_some(asio::buffer(bytes.data(), bytes.size()), kTuple);
  co_return IoResult{ec, sent};
}

void Connection::Arm(Clock::time_point deadline) {
  timed_out_ = false;
  armed_ = true;
  timer_.expires_at(deadline);
  timer_.async_wait([weak = weak_from_this()](error_code ec) {
    if (ec) return;
    if (const auto self = weak.lock()) self->OnDeadline();
  });
}

void Connection::Disarm() {
  armed_ = false;
  timer_.cancel();
}

// A handler already queued when the deadline moved finds the timer's expiry ahead of it.
void Connection::OnDeadline() {
  if (!armed_ || timer_.expiry() > Clock::now()) return;
  timed_out_ = true;
  CancelHandshake();
  error_code ignored;
  socket_.cancel(ignored);
}

void Connection::CancelHandshake() {
  if (tls_) tls_->CancelHandshake();
}

Awaitable<Connection::ReadResult> Connection::Read() {
  const auto [ec, bytes] = co_await ReadSome();
  input_.append(scratch_.data(), bytes);
  if (!ec) co_return ReadResult::kData;
  if (ec == asio::error::operation_aborted) co_return timed_out_ ? ReadResult::kTimeout : ReadResult::kFailed;
  const bool end = ec == asio::error::eof;
  (end ? ended_ : gone_) = true;
  co_return end ? ReadResult::kEnd : ReadResult::kFailed;
}

Awaitable<bool> Connection::Write(std::string_view bytes, AnswerKind kind) {
  const bool whole = kind == AnswerKind::kWhole;
  write_kind_ = kind;
  while (!bytes.empty()) {
    const auto began = Clock::now();
    write_waits_ = began;
    Arm(began + write_timeout_ - (whole ? write_lag_.value() : std::chrono::nanoseconds()));
    const auto [ec, sent] = co_await WriteSome(bytes);
    Disarm();
    write_waits_.reset();
    if (whole) {
      write_lag_.AddWait(Clock::now() - began);
      write_lag_.AddBytes(sent);
    }
    if (ec) {
      gone_ = true;
      co_return false;
    }
    bytes.remove_prefix(sent);
  }
  co_return true;
}

std::optional<WaitingWrite> Connection::WaitingWriteAt(Clock::time_point now) const {
  if (!write_waits_) return std::nullopt;
  const bool whole = write_kind_ == AnswerKind::kWhole;
  return WaitingWrite{write_kind_,
                      now - *write_waits_ + (whole ? write_lag_.value() : std::chrono::nanoseconds())};
}

// A client that sends on and on without waiting for answers is not read any further.
Awaitable<void> Connection::WaitForEnd() {
  while (!ended_ && input_.size() < kReadAheadBytesMax) {
    const ReadResult got = co_await Read();
    if (got != ReadResult::kData) co_return;
  }
}

Awaitable<void> Connection::WaitForReset() {
  const auto [ec] = co_await socket_.async_wait(Socket::wait_error, kTuple);
  if (!ec) gone_ = true;
}

Awaitable<IoResult> Connection::DropSome() {
  const auto [ec] = co_await socket_.async_wait(Socket::wait_read, kTuple);
  co_return ec ? IoResult{ec, 0} : DropReceived(socket_.native_handle());
}

// False: no more will come.
Awaitable<bool> Connection::DropAnnounced(uint64_t bytes) {
  RateLag lag(bytes_per_second_min_);
  for (uint64_t dropped = 0; dropped < bytes;) {
    const auto began = Clock::now();
    Arm(began + std::min<std::chrono::nanoseconds>(kLingerSilence, kLingerTime - lag.value()));
    const IoResult read = co_await DropSome();
    if (read.error) co_return false;
    lag.AddWait(Clock::now() - began);
    lag.AddBytes(read.bytes);
    dropped += read.bytes;
  }
  co_return true;
}

Awaitable<void> Connection::DropRest() {
  const auto end = Clock::now() + kLingerTime;
  for (size_t dropped = 0; dropped < kLingerBytesMax;) {
    Arm(std::min(end, Clock::now() + kLingerSilence));
    const IoResult read = co_await DropSome();
    if (read.error) co_return;
    dropped += read.bytes;
  }
}

Awaitable<void> Connection::CloseGracefully(uint64_t announced_bytes) {
  if (tls_) {
    announced_bytes += announced_bytes / 8;  // as records
    Arm(Clock::now() + kTlsShutdownTime);
    co_await tls_->Shutdown();
    tls_.reset();
  }
  error_code ec;
  socket_.shutdown(Socket::shutdown_send, ec);
  if (!ec) {
    std::string().swap(input_);
    const bool more = co_await DropAnnounced(announced_bytes);
    if (more) co_await DropRest();
  }
  Abort();
}

Awaitable<void> Connection::RefuseForMemory() {
  input_.clear();
  const bool sent = co_await Write(kOutOfMemory);
  if (sent) co_await CloseGracefully();
}

void Connection::Abort() {
  gone_ = true;
  Disarm();
  CancelHandshake();
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace quire::server
