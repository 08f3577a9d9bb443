// One connection's coroutine: request after request, each read, checked, routed, answered and logged in turn.
// I/O thread only.
#pragma once

#include <chrono>
#include <expected>
#include <memory>
#include <optional>

#include "server/http/awaitable.h"
#include "server/http/connection.h"
#include "server/http/transport.h"

namespace quire::server {

class Session {
 public:
  using Clock = std::chrono::steady_clock;

  // `bound` is the address the listener was bound to; nothing for a Unix socket. The transport outlives the
  // session.
  Session(Transport& transport, std::shared_ptr<Connection> connection,
          std::optional<boost::asio::ip::address> bound);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Ends when the connection is closed.
  Awaitable<void> Run();

  // No request is being answered: the client has sent nothing, or not yet a whole header.
  bool waiting() const { return waiting_; }
  Clock::time_point waiting_since() const { return waiting_since_; }
  // What is known so far of the request that is being answered, or null.
  const RequestLog* answering() const { return answering_; }
  void Abort();

 private:
  struct Turn;

  Awaitable<bool> ServeOne();
  Awaitable<std::expected<bool, ParseFailure>> ReadHeader(Turn& turn);
  Awaitable<std::expected<bool, ParseFailure>> ReadBody(Turn& turn);
  Awaitable<void> Refuse(Turn& turn, const ParseFailure& why);
  std::optional<HttpResponse> Check(Turn& turn);
  std::optional<HttpResponse> CheckAccess(Turn& turn);
  Awaitable<void> Answer(Turn& turn);
  Awaitable<void> RunHandler(Turn& turn);
  HttpResponse ErrorResponse(Turn& turn, int status, std::string message) const;

  Transport& transport_;
  std::shared_ptr<Connection> connection_;
  std::optional<boost::asio::ip::address> bound_;
  const RequestLog* answering_ = nullptr;
  bool waiting_ = true;
  Clock::time_point waiting_since_ = Clock::now();
};

}  // namespace quire::server
