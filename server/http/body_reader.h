// Reads one request's body from its connection in pieces, at a minimum rate, behind which the client may be
// by the body timeout. What is done with a piece before the next is asked for costs nothing. I/O thread only;
// lives as long as the request.
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <utility>

#include "server/http/awaitable.h"
#include "server/http/connection.h"
#include "server/http/io_turns.h"
#include "server/http/parser.h"
#include "server/http/transport.h"

namespace quire::server {

class BodyReader {
 public:
  // All references outlive the reader.
  BodyReader(Connection& connection, HttpParser& parser, Transport& transport)
      : connection_(connection),
        parser_(parser),
        limits_(transport.limits),
        turns_(*transport.turns),
        party_(connection.party()),
        lag_(limits_.body_bytes_per_second_min) {}

  // Whose the body is (PartyOf), once its key is known.
  void SetOwner(fair::PartyId party) { party_ = std::move(party); }

  // The whole body was read; also when there is none.
  bool done() const { return parser_.done(); }
  // Why the body cannot be had, once More() or Next() said so.
  const std::optional<ParseFailure>& failure() const { return failure_; }

  // How far the client is behind the minimum rate, while it, or the turn of what it sent, is waited for; else
  // nothing.
  std::optional<std::chrono::nanoseconds> LagAt(Connection::Clock::time_point now) const;

  // Waits for more of the body and appends it to the request's. A client that sent Expect gets 100 Continue
  // first. True: some came, or all is there. False: failure(), or the client is gone when there is none.
  Awaitable<bool> More();
  // The next piece, taken out of the request; empty at the end. Nothing: as More() when false.
  Awaitable<std::optional<std::string>> Next();
  // Reads a small body away, so that the connection can go on. False: it cannot.
  Awaitable<bool> Drop();

 private:
  bool NeedsTurn() const;

  Connection& connection_;
  HttpParser& parser_;
  const TransportLimits& limits_;
  IoTurns& turns_;
  fair::PartyId party_;
  bool started_ = false;
  RateLag lag_;
  bool waits_for_turn_ = false;
  std::optional<Connection::Clock::time_point> asked_;  // while the client is waited for: since when
  std::optional<ParseFailure> failure_;
};

}  // namespace quire::server
