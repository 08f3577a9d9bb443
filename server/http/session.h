// One connection's coroutine: request after request, each read, checked, routed, answered and logged in turn.
// A request that throws std::bad_alloc gets 503 here, and nowhere else. I/O thread only.
#pragma once

#include <chrono>
#include <expected>
#include <memory>
#include <optional>

#include "api/base/fair/quota.h"
#include "server/http/awaitable.h"
#include "server/http/body_reader.h"
#include "server/http/connection.h"
#include "server/http/content_encoding.h"
#include "server/http/replacement.h"
#include "server/http/transport.h"

namespace quire::server {

// Reserved places are beyond the limit of connections: they answer one request, for health only, or another
// whose party has fewer connections than one whose place it takes.
enum class Place : uint8_t { kNormal, kReserved };

class Session {
 public:
  using Clock = std::chrono::steady_clock;

  // `bound` is the address the listener was bound to; nothing for a Unix socket. `reserved` is of a reserved
  // place, if it has one. The transport outlives the session.
  Session(Transport& transport, std::shared_ptr<Connection> connection,
          std::optional<boost::asio::ip::address> bound, fair::Quota::Lease reserved);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Ends when the connection is closed.
  Awaitable<void> Run();

  // No request is in progress: the client has sent no complete header yet.
  bool idle() const { return idle_; }
  Place place() const { return reserved_.amount() > 0 ? Place::kReserved : Place::kNormal; }
  // Since when, and at which stage, a new connection may replace this one. Nothing: its client is gone.
  std::optional<Idleness> IdlenessAt(Clock::time_point now) const;
  // The log of the request in progress, or null.
  const RequestLog* answering() const { return answering_; }
  // Closes the connection. `why`: for the log of the request in progress.
  void Abort(const char* why = nullptr);

 private:
  struct RequestScope;
  class RequestEnd;

  using Stage = Idleness::Stage;

  std::optional<Idleness> UnreadAt(Clock::time_point now) const;
  bool MoveToNormalPlace();

  Awaitable<bool> ServeUntilClosed();
  Awaitable<bool> ServeOne();
  Awaitable<void> WaitForTurn();
  Awaitable<std::expected<bool, ParseFailure>> ReadHeader(RequestScope& scope);
  Awaitable<std::expected<bool, ParseFailure>> ReadBody(RequestScope& scope);
  Awaitable<std::expected<void, ParseFailure>> DecodeBody(RequestScope& scope, ContentEncoding encoding);
  Awaitable<void> Refuse(RequestScope& scope, const ParseFailure& why);
  std::optional<HttpResponse> Check(RequestScope& scope);
  std::optional<HttpResponse> CheckAccess(RequestScope& scope);
  Awaitable<void> Answer(RequestScope& scope);
  Awaitable<void> RunHandler(RequestScope& scope);
  Awaitable<void> WatchClient(RequestScope& scope);
  HttpResponse ErrorResponse(RequestScope& scope, int status, std::string message) const;

  Transport& transport_;
  std::shared_ptr<Connection> connection_;
  std::optional<boost::asio::ip::address> bound_;
  fair::Quota::Lease reserved_;
  const RequestLog* answering_ = nullptr;
  const BodyReader* body_ = nullptr;     // of the request in progress
  const char* abort_reason_ = nullptr;   // of Abort()
  bool answer_cut_off_ = false;          // a part of the last answer has been sent
  uint64_t announced_bytes_ = 0;         // of the last request's body, if it was not read to its end
  Stage stage_ = Stage::kBeforeRequest;  // while idle
  bool idle_ = true;
  Clock::time_point idle_since_ = Clock::now();
};

}  // namespace quire::server
