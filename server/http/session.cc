#include "server/http/session.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <random>
#include <utility>

#include "server/http/body_reader.h"
#include "server/http/response_writer.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
using namespace boost::asio::experimental::awaitable_operators;

std::string NewRequestId() {
  static std::mt19937_64 random{std::random_device{}()};
  return fmt::format("req_{:016x}", random());
}

// A body's bytes, counted against what all connections may hold together.
class BodyShare {
 public:
  explicit BodyShare(Transport& transport) : transport_(transport) {}
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;
  ~BodyShare() { transport_.buffered_bodies_bytes -= held_; }

  bool GrowTo(uint64_t bytes) {
    if (bytes <= held_) return true;
    const uint64_t more = bytes - held_;
    if (more > transport_.limits.buffered_bodies_bytes - transport_.buffered_bodies_bytes) return false;
    transport_.buffered_bodies_bytes += more;
    held_ = bytes;
    return true;
  }

 private:
  Transport& transport_;
  uint64_t held_ = 0;
};

}  // namespace

struct Session::Turn {
  Turn(Transport& transport, Connection& connection, const asio::any_io_executor& executor)
      : parser(transport.limits.parser),
        share(transport),
        body(connection, parser, transport.limits),
        writer(connection, parser.request(), log, transport.draining, body,
               transport.limits.keep_alive_interval, executor) {
    log.id = NewRequestId();
    log.client = connection.peer();
    log.start = Clock::now();
  }

  HttpParser parser;
  BodyShare share;
  RequestLog log;
  BodyReader body;
  ResponseWriter writer;
  const Route* route = nullptr;
  AccessControl::Place place;
};

Session::Session(Transport& transport, std::shared_ptr<Connection> connection,
                 std::optional<asio::ip::address> bound)
    : transport_(transport), connection_(std::move(connection)), bound_(std::move(bound)) {}

Awaitable<void> Session::Run() {
  // gcc 12 miscompiles co_await in a loop's condition.
  for (bool more = true; more;) more = co_await ServeOne();
  waiting_ = true;
  if (connection_->gone()) {
    connection_->Abort();
  } else {
    co_await connection_->CloseGracefully();
  }
}

void Session::Abort() {
  waiting_ = false;
  connection_->Abort();
}

HttpResponse Session::ErrorResponse(Turn& turn, int status, std::string message) const {
  turn.log.error = message;
  return transport_.error_response(turn.parser.request(), status, std::move(message));
}

// True when a request was answered and another may follow.
Awaitable<bool> Session::ServeOne() {
  const auto executor = co_await asio::this_coro::executor;
  Turn turn(transport_, *connection_, executor);
  auto ready = co_await ReadHeader(turn);
  if (ready && !*ready) co_return false;
  waiting_ = false;
  answering_ = &turn.log;

  if (!ready) {
    turn.writer.CloseAfterwards();
    const HttpResponse failure = ErrorResponse(turn, ready.error().status, ready.error().reason);
    co_await turn.writer.Send(failure);
  } else {
    const HttpRequest& request = turn.parser.request();
    turn.log.method = request.method;
    turn.log.path = request.path;
    co_await Answer(turn);
  }
  if (turn.log.status == 0) turn.log.status = 499;
  answering_ = nullptr;
  transport_.on_request(turn.log);

  const bool broken = turn.writer.started() && !turn.writer.complete();
  if (broken) connection_->Abort();
  co_return turn.writer.reusable() && !connection_->gone();
}

// True: a whole header. False: the client closed or stayed silent.
Awaitable<std::expected<bool, ParseFailure>> Session::ReadHeader(Turn& turn) {
  waiting_ = true;
  waiting_since_ = Clock::now();
  connection_->ArmRead(waiting_since_ + transport_.limits.idle_timeout);
  for (bool begun = false;;) {
    if (!connection_->input().empty()) {
      if (!begun) {
        begun = true;
        waiting_since_ = turn.log.start = Clock::now();
        connection_->ArmRead(waiting_since_ + transport_.limits.header_timeout);
      }
      const auto used = turn.parser.Feed(connection_->input());
      if (!used) co_return std::unexpected<ParseFailure>(used.error());
      connection_->Consume(*used);
      if (turn.parser.header_done()) break;
      if (*used > 0) continue;
    }
    const Connection::ReadResult got = co_await connection_->Read();
    if (got == Connection::ReadResult::kTimeout && begun) {
      co_return std::unexpected<ParseFailure>(ParseFailure{408, "request header took too long"});
    }
    if (got != Connection::ReadResult::kData) co_return false;
  }
  connection_->Disarm();
  co_return true;
}

// True: the whole body. False: the client is gone.
Awaitable<std::expected<bool, ParseFailure>> Session::ReadBody(Turn& turn) {
  const std::string& body = turn.parser.request().body;
  if (!turn.share.GrowTo(turn.parser.content_length())) {
    co_return std::unexpected<ParseFailure>(ParseFailure{503, "too many request bodies in memory"});
  }
  while (!turn.parser.done()) {
    const bool came = co_await turn.body.More();
    if (!came && turn.body.failure()) co_return std::unexpected<ParseFailure>(*turn.body.failure());
    if (!came) co_return false;
    if (!turn.share.GrowTo(body.size())) {
      co_return std::unexpected<ParseFailure>(ParseFailure{503, "too many request bodies in memory"});
    }
  }
  co_return true;
}

// Everything that can be said without the body. Sets the route when nothing is in the way.
std::optional<HttpResponse> Session::Check(Turn& turn) {
  const HttpRequest& request = turn.parser.request();
  const HttpResponse forbidden{.status = 403, .content_type = {}};
  if (bound_ && !transport_.origins.AllowsHost(request.host, *bound_)) {
    turn.log.error = "host refused";
    return forbidden;
  }
  if (const std::string* origin = request.Find("origin")) {
    if (!transport_.origins.AllowsOrigin(*origin, request.host)) {
      turn.log.error = "origin refused";
      return forbidden;
    }
    if (request.method == "OPTIONS") return PreflightResponse(*origin);
    for (HeaderField& field : CorsFields(*origin)) turn.writer.AddField(std::move(field));
  }
  RouteMatch match = transport_.router.Match(request.method, request.path);
  switch (match.kind) {
    case RouteMatch::Kind::kFound:
      turn.route = match.route;
      turn.log.route = match.route->path;
      return CheckAccess(turn);
    case RouteMatch::Kind::kRedirect: {
      std::string location = request.target.substr(0, request.target.find('?'));
      while (location.size() > 1 && location.ends_with('/')) location.pop_back();
      if (!request.query.empty()) location += "?" + request.query;
      return HttpResponse{.status = 307, .content_type = {}, .headers = {{"Location", std::move(location)}}};
    }
    case RouteMatch::Kind::kMethodNotAllowed: {
      HttpResponse response = request.method == "OPTIONS" ? HttpResponse{.status = 204, .content_type = {}}
                                                          : ErrorResponse(turn, 405, "method not allowed");
      response.headers.push_back({"Allow", std::move(match.allow)});
      return response;
    }
    case RouteMatch::Kind::kNotFound:
      break;
  }
  if (request.method == "OPTIONS" && request.path == "*")
    return HttpResponse{.status = 204, .content_type = {}};
  return ErrorResponse(turn, 404, "not found");
}

// Whether the client may use the route. A refused body is not read: the connection ends with the answer.
std::optional<HttpResponse> Session::CheckAccess(Turn& turn) {
  auto admitted =
      transport_.access.Admit(turn.parser.request(), turn.route->access, turn.route->watched, Clock::now());
  if (admitted) {
    turn.log.key = admitted->name;
    turn.parser.request().identity = std::move(admitted->name);
    turn.parser.request().weight = admitted->weight;
    turn.place = std::move(admitted->place);
    return std::nullopt;
  }
  const AccessControl::Refusal& refusal = admitted.error();
  if (!turn.parser.done()) turn.writer.CloseAfterwards();
  HttpResponse response = ErrorResponse(turn, refusal.status, refusal.message);
  if (refusal.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  if (refusal.status == 429) {
    response.headers.push_back({"Retry-After", fmt::format("{}", refusal.retry_after.count())});
  }
  return response;
}

// The answer to what went wrong with a body; the connection cannot go on.
Awaitable<void> Session::Refuse(Turn& turn, const ParseFailure& why) {
  turn.writer.CloseAfterwards();
  const HttpResponse failure = ErrorResponse(turn, why.status, why.reason);
  co_await turn.writer.Send(failure);
}

Awaitable<void> Session::Answer(Turn& turn) {
  std::optional<HttpResponse> refusal = Check(turn);
  if (refusal) {
    co_await turn.writer.Send(std::move(*refusal));
    co_return;
  }
  const bool streamed = turn.route->streamed_body_bytes > 0;
  const uint64_t body_bytes_max =
      streamed ? turn.route->streamed_body_bytes : transport_.limits.parser.body_bytes;
  const auto allowed = turn.parser.AllowBody(body_bytes_max);
  if (!allowed) {
    co_await Refuse(turn, allowed.error());
    co_return;
  }
  if (!streamed && !turn.parser.done()) {
    const auto body = co_await ReadBody(turn);
    if (!body) {
      co_await Refuse(turn, body.error());
      co_return;
    }
    if (!*body) co_return;
  }
  if (turn.route->watched) {
    co_await (RunHandler(turn) || connection_->WatchForDisconnect() || turn.writer.FillSilence());
  } else {
    co_await RunHandler(turn);
  }
  if (turn.writer.started() || connection_->gone()) co_return;
  if (turn.body.failure()) {
    co_await Refuse(turn, *turn.body.failure());
    co_return;
  }
  if (!turn.body.done()) co_return;  // the client left in the middle of its body
  turn.log.error = "no answer";
  const HttpResponse failure = transport_.error_response(turn.parser.request(), 500, "internal server error");
  co_await turn.writer.Send(failure);
}

// Never throws: a cancelled handler has simply ended, a broken one is logged.
Awaitable<void> Session::RunHandler(Turn& turn) {
  try {
    co_await turn.route->handler(turn.writer);
  } catch (const boost::system::system_error& error) {
    if (error.code() == asio::error::operation_aborted) {
      turn.log.error = "client gone";
    } else {
      spdlog::error("id={} handler failed: {}", turn.log.id, error.what());
    }
  } catch (const std::exception& error) {
    spdlog::error("id={} handler failed: {}", turn.log.id, error.what());
  }
}

}  // namespace quire::server
