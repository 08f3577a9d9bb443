#include "server/http/body_reader.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace quire::server {
namespace {

// The body of a request that is refused is read and dropped up to this size to keep the connection.
constexpr uint64_t kDroppedBodyBytesMax = uint64_t{256} << 10;
constexpr uint64_t kSmallBodyBytes = uint64_t{64} << 10;  // a body that has no more needs no turn

}  // namespace

std::optional<std::chrono::nanoseconds> BodyReader::LagAt(Connection::Clock::time_point now) const {
  if (waits_for_turn_) return lag_.value();
  if (!asked_) return std::nullopt;
  return lag_.value() + (now - *asked_);
}

Awaitable<bool> BodyReader::More() {
  if (!std::exchange(started_, true)) {
    if (parser_.request().expects_continue) {
      const bool sent = co_await connection_.Write("HTTP/1.1 100 Continue\r\n\r\n");
      if (!sent) co_return false;
    }
  }
  const std::string& body = parser_.request().body;
  const size_t before = body.size();
  while (!parser_.done() && body.size() == before) {
    const size_t had = body.size();
    std::optional<IoTurns::Turn> turn;
    if (NeedsTurn()) {
      waits_for_turn_ = true;
      turn.emplace(co_await turns_.Wait(party_));
      waits_for_turn_ = false;
      if (!*turn) co_return false;
    }
    const auto used = parser_.Feed(connection_.input());
    turn.reset();
    if (!used) {
      failure_ = used.error();
      co_return false;
    }
    connection_.Consume(*used);
    lag_.AddBytes(body.size() - had);
    if (*used > 0) continue;
    asked_ = Connection::Clock::now();
    connection_.ArmRead(*asked_ + limits_.body_timeout - lag_.value());
    const Connection::ReadResult got = co_await connection_.Read();
    lag_.AddWait(Connection::Clock::now() - *asked_);
    asked_.reset();
    connection_.Disarm();
    if (got == Connection::ReadResult::kTimeout) failure_ = ParseFailure{408, "request body took too long"};
    if (got != Connection::ReadResult::kData) co_return false;
  }
  co_return true;
}

// What has come of a large body.
bool BodyReader::NeedsTurn() const {
  return std::max(parser_.body_bytes(), parser_.content_length()) > kSmallBodyBytes &&
         !connection_.input().empty();
}

Awaitable<std::optional<std::string>> BodyReader::Next() {
  std::string& body = parser_.request().body;
  if (body.empty() && !parser_.done()) {
    const bool came = co_await More();
    if (!came) co_return std::nullopt;
  }
  co_return std::exchange(body, {});
}

Awaitable<bool> BodyReader::Drop() {
  const bool unasked = parser_.request().expects_continue && !started_;
  if (failure_ || unasked || parser_.chunked() || parser_.content_length() > kDroppedBodyBytesMax)
    co_return false;
  while (!parser_.done()) {
    const auto piece = co_await Next();
    if (!piece) co_return false;
  }
  co_return true;
}

}  // namespace quire::server
