// One accepted socket, TCP or Unix, with TLS or without: buffered input, whole writes, one deadline. I/O
// thread only; at most one read and one write at a time. Held by shared_ptr because the deadline's timer may
// fire after its session ended.
#pragma once

#include <algorithm>
#include <array>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/base/fair/quota.h"
#include "server/http/awaitable.h"
#include "server/http/replacement.h"
#include "server/http/tls.h"

namespace quire::server {

// How far a peer is behind a minimum rate: to wait for it adds to the lag, its bytes take from it. The lag is
// never negative: bytes that came fast do not pay for a silence later. No share of anything: the clock alone
// says that a peer is too slow.
class RateLag {
 public:
  explicit RateLag(uint64_t bytes_per_second_min) : bytes_per_second_min_(bytes_per_second_min) {}

  void AddWait(std::chrono::nanoseconds waited) { value_ += waited; }
  void AddBytes(uint64_t bytes) {
    const std::chrono::duration<double> paid(static_cast<double>(bytes) /
                                             static_cast<double>(bytes_per_second_min_));
    value_ -= std::chrono::duration_cast<std::chrono::nanoseconds>(std::min<decltype(paid)>(paid, value_));
  }
  std::chrono::nanoseconds value() const { return value_; }

 private:
  uint64_t bytes_per_second_min_;
  std::chrono::nanoseconds value_{};
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;

  enum class ReadResult { kData, kEnd, kTimeout, kFailed };

  using Socket = boost::asio::generic::stream_protocol::socket;

  // Holds one of `connections`, which outlives it. Throws std::bad_alloc, and the socket is as it was.
  Connection(Socket&& socket, fair::Quota& connections, std::chrono::nanoseconds write_timeout,
             uint64_t bytes_per_second_min);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Waits until the client has sent something, which is not read. False: nothing came by `deadline`.
  Awaitable<bool> WaitForFirstByte(Clock::time_point deadline);
  // Speaks TLS from now on. False when the handshake failed or was not done by `deadline`. REQUIRES: called
  // before anything is read or written.
  Awaitable<bool> StartTls(const TlsContext& context, const ComputeStep& compute, Clock::time_point deadline);

  // Bytes that came and were not used yet.
  std::string_view input() const { return input_; }
  void Consume(size_t bytes) {
    input_.erase(0, bytes);
    if (input_.empty() && input_.capacity() > kKeptInputBytesMax) std::string().swap(input_);
  }

  // Waits for more input, until the deadline set by ArmRead().
  Awaitable<ReadResult> Read();
  void ArmRead(Clock::time_point deadline) { Arm(deadline); }
  void Disarm();

  // Sends all of it. False when the peer is gone or too slow; the connection is then of no further use. The
  // peer may be the write timeout behind the minimum rate with all whole answers, and take nothing of a
  // stream for as long.
  Awaitable<bool> Write(std::string_view bytes, AnswerKind kind = AnswerKind::kWhole);
  // Nothing: no write waits.
  std::optional<WaitingWrite> WaitingWriteAt(Clock::time_point now) const;

  // Ends when the client has sent all it will send (ended()) or is gone. Bytes received meanwhile stay in
  // input() for the next requests; at a limit it ends too. Cancellation ends it without a result.
  Awaitable<void> WaitForEnd();
  // Ends when the client is gone, also one that had ended before. A client that has closed its socket is
  // known to be gone only once it refuses something that was sent to it.
  Awaitable<void> WaitForReset();
  bool ended() const { return ended_; }  // it may still read: a half-closed connection
  bool gone() const { return gone_; }    // also after Abort()

  // Answers 503 and closes, with no memory but that of the coroutines' frames. REQUIRES: no part of an answer
  // has been sent that is not whole.
  Awaitable<void> RefuseForMemory();

  // Closes so that the peer still reads what was sent: half-closes, then drops what it sends until it closes
  // or is silent for 5 s. It may send the bytes that it announced while they come at the minimum rate, and
  // then 128 MiB in 30 s.
  Awaitable<void> CloseGracefully(uint64_t announced_bytes = 0);
  // Closes at once; pending reads and writes end with an error.
  void Abort();

  static std::string PeerOf(Socket& socket);
  // "127.0.0.1:40000", "unix:1000" (the peer's user)
  const std::string& peer() const { return peer_; }
  // PartyOf() without a key.
  const fair::PartyId& party() const { return own_.party(); }
  // The connections of the same party, with this one.
  size_t party_connections() const { return connections_.HoldingOf(party()); }

 private:
  void Arm(Clock::time_point deadline);
  void OnDeadline();
  void CancelHandshake();
  Awaitable<IoResult> ReadSome();
  Awaitable<IoResult> WriteSome(std::string_view bytes);
  Awaitable<IoResult> DropSome();
  Awaitable<bool> DropAnnounced(uint64_t bytes);
  Awaitable<void> DropRest();

  std::string peer_;
  fair::Quota& connections_;
  fair::Quota::Lease own_;
  Socket socket_;
  std::unique_ptr<TlsStream> tls_;  // uses socket_
  boost::asio::steady_timer timer_;
  std::chrono::nanoseconds write_timeout_;
  uint64_t bytes_per_second_min_;
  RateLag write_lag_;                             // with whole answers
  std::optional<Clock::time_point> write_waits_;  // while a write waits: since it began, or took something
  AnswerKind write_kind_ = AnswerKind::kWhole;
  // A connection that waits for its next request keeps no more of what the last one took.
  static constexpr size_t kKeptInputBytesMax = size_t{4} << 10;
  std::string input_;
  std::array<char, 16384> scratch_;  // what a pending read fills
  bool armed_ = false;
  bool timed_out_ = false;
  bool ended_ = false;
  bool gone_ = false;
};

}  // namespace quire::server
