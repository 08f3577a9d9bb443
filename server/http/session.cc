#include "server/http/session.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <exception>
#include <new>
#include <utility>

#include "api/base/random_id.h"
#include "server/http/body_reader.h"
#include "server/http/content_encoding.h"
#include "server/http/party.h"
#include "server/http/request_exchange.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
using namespace boost::asio::experimental::awaitable_operators;

// The largest body of all routes.
uint64_t UploadBytesMax(const Router& router) {
  uint64_t largest = 0;
  for (const Route& route : router.routes()) largest = std::max(largest, route.streamed_body_bytes);
  return largest;
}

uint64_t BodyBytesMax(const Route& route, const TransportLimits& limits) {
  if (route.streamed_body_bytes > 0) return route.streamed_body_bytes;
  const uint64_t all = limits.parser.body_bytes;
  return route.body_bytes_max > 0 ? std::min(route.body_bytes_max, all) : all;
}

// As OpenAI's service reports them.
void AddRateFields(AnswerWriter& writer, const RateState& rate) {
  writer.AddField({"x-ratelimit-limit-requests", fmt::format("{}", rate.limit)});
  writer.AddField({"x-ratelimit-remaining-requests", fmt::format("{}", rate.remaining)});
  writer.AddField({"x-ratelimit-reset-requests", fmt::format("{}s", rate.full_after.count())});
}

std::string_view RequestedHeaders(const HttpRequest& request) {
  const std::string* field = request.Find("access-control-request-headers");
  return field == nullptr ? std::string_view() : *field;
}

}  // namespace

struct Session::RequestScope {
  RequestScope(Transport& transport, Connection& connection, const asio::any_io_executor& executor)
      : parser(transport.limits.parser),
        body(connection, parser, transport),
        writer(transport, connection, parser.request(), log, executor),
        exchange(transport, parser.request(), log, body, writer) {
    log.id = api::RandomId("req_");
    log.client = connection.peer();
    log.start = Clock::now();
  }

  HttpParser parser;
  RequestLog log;
  BodyReader body;
  AnswerWriter writer;
  RequestExchange exchange;
  const Route* route = nullptr;
  std::exception_ptr out_of_memory;  // of the handler
};

Session::Session(Transport& transport, std::shared_ptr<Connection> connection,
                 std::optional<asio::ip::address> bound, fair::Quota::Lease reserved)
    : transport_(transport),
      connection_(std::move(connection)),
      bound_(std::move(bound)),
      reserved_(std::move(reserved)) {}

Awaitable<void> Session::Run() {
  const bool served = co_await ServeUntilClosed();
  idle_ = true;
  idle_since_ = Clock::now();
  stage_ = Stage::kClosing;
  if (connection_->gone() || (!served && answer_cut_off_)) {
    connection_->Abort();
  } else if (!served) {
    co_await connection_->RefuseForMemory();
  } else {
    // An upload that is refused goes on until its client reads.
    const uint64_t announced = std::min(announced_bytes_, UploadBytesMax(transport_.router));
    co_await connection_->CloseGracefully(announced);
  }
}

// False: there was no memory for a request.
Awaitable<bool> Session::ServeUntilClosed() {
  try {
    // gcc 12 miscompiles co_await in a loop's condition.
    for (bool more = true; more;) more = co_await ServeOne();
    co_return true;
  } catch (const std::bad_alloc&) {
    spdlog::error("request failed: out of memory");
    co_return false;
  } catch (const std::exception& error) {
    spdlog::error("connection failed: {}", error.what());
    connection_->Abort();
    co_return false;
  }
}

// Notes at the end of a request, also of one that throws, what outlives it.
class Session::RequestEnd {
 public:
  RequestEnd(Session& session, const RequestScope& scope) : session_(session), scope_(scope) {}
  RequestEnd(const RequestEnd&) = delete;
  RequestEnd& operator=(const RequestEnd&) = delete;
  ~RequestEnd() {
    session_.answering_ = nullptr;
    session_.body_ = nullptr;
    session_.answer_cut_off_ = scope_.writer.begun() && !scope_.writer.complete();
    session_.announced_bytes_ = scope_.parser.done() ? 0 : scope_.parser.content_length();
  }

 private:
  Session& session_;
  const RequestScope& scope_;
};

void Session::Abort(const char* why) {
  abort_reason_ = why;
  idle_ = false;
  connection_->Abort();
}

// Nobody waits for the answer to a request that is not whole: to wait for its rest is to be without one. A
// body that came at the minimum rate all the time is no more idle than one that is whole.
std::optional<Idleness> Session::IdlenessAt(Clock::time_point now) const {
  const size_t connections = connection_->party_connections();
  if (idle_) return Idleness{stage_, idle_since_, connections};
  if (connection_->gone()) return std::nullopt;
  const auto lag = body_ == nullptr ? std::nullopt : body_->LagAt(now);
  if (lag && *lag >= kFreshTime) return Idleness{Stage::kBeforeRequest, now - *lag, connections};
  if (const auto unread = UnreadAt(now)) return unread;
  return Idleness{Stage::kBusy, idle_since_, connections};
}

// An answer that its client does not read. In a reserved place it need not wait: those of health wait for
// nobody.
std::optional<Idleness> Session::UnreadAt(Clock::time_point now) const {
  const auto write = connection_->WaitingWriteAt(now);
  if (!write) return std::nullopt;
  auto stage = StageOfUnread(*write);
  if (!stage && place() == Place::kReserved) stage = Stage::kUnreadAnswer;
  if (!stage) return std::nullopt;
  return Idleness{*stage, now - write->lag, connection_->party_connections()};
}

HttpResponse Session::ErrorResponse(RequestScope& scope, int status, std::string message) const {
  scope.log.error = message;
  return transport_.error_response(scope.parser.request(), status, std::move(message), scope.log.id);
}

// True when a request was answered and another may follow.
Awaitable<bool> Session::ServeOne() {
  const auto executor = co_await asio::this_coro::executor;
  answer_cut_off_ = false;
  RequestScope scope(transport_, *connection_, executor);
  const RequestEnd end(*this, scope);
  auto ready = co_await ReadHeader(scope);
  if (ready && !*ready) co_return false;
  idle_ = false;
  stage_ = Stage::kBetweenRequests;
  answering_ = &scope.log;
  body_ = &scope.body;
  if (place() == Place::kReserved) scope.writer.CloseAfterwards();
  co_await WaitForTurn();

  if (!ready) {
    scope.writer.CloseAfterwards();
    const HttpResponse failure = ErrorResponse(scope, ready.error().status, ready.error().reason);
    co_await scope.exchange.Send(failure);
  } else {
    const HttpRequest& request = scope.parser.request();
    scope.log.method = request.method;
    scope.log.path = request.path;
    co_await Answer(scope);
  }
  if (scope.log.status == 0) scope.log.status = 499;
  const bool broken = scope.writer.started() && !scope.writer.complete();
  if (abort_reason_ != nullptr) scope.log.error = abort_reason_;
  // A handler whose write fails just ends.
  if (broken && connection_->gone() && scope.log.error.empty()) scope.log.error = "client gone";
  answering_ = nullptr;
  transport_.on_request(scope.log);

  if (broken) connection_->Abort();
  co_return scope.writer.reusable() && !connection_->gone();
}

// A turn of the I/O thread lasts until what the request does at once is done: however many connections
// somebody has, others wait for a few of their requests.
Awaitable<void> Session::WaitForTurn() {
  const auto executor = co_await asio::this_coro::executor;
  auto turn = co_await transport_.turns->Wait(connection_->party(), reinterpret_cast<uintptr_t>(this));
  if (turn) asio::post(executor, [turn = std::move(turn)] {});
}

bool Session::MoveToNormalPlace() {
  if (!transport_.make_normal_room(connection_->party_connections() - 1)) return false;
  reserved_.ShrinkTo(0);
  return true;
}

// True: a whole header. False: the client closed or stayed silent.
Awaitable<std::expected<bool, ParseFailure>> Session::ReadHeader(RequestScope& scope) {
  idle_ = true;
  idle_since_ = Clock::now();
  connection_->ArmRead(idle_since_ + transport_.limits.idle_timeout);
  for (bool begun = false;;) {
    if (!connection_->input().empty()) {
      if (!begun) {
        begun = true;
        idle_since_ = scope.log.start = Clock::now();
        connection_->ArmRead(idle_since_ + transport_.limits.header_timeout);
      }
      const auto used = scope.parser.Feed(connection_->input());
      if (!used) co_return std::unexpected<ParseFailure>(used.error());
      connection_->Consume(*used);
      if (scope.parser.header_done()) break;
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
Awaitable<std::expected<bool, ParseFailure>> Session::ReadBody(RequestScope& scope) {
  const std::string& body = scope.parser.request().body;
  // What is only announced takes nothing from others.
  if (auto full =
          FailureOf(scope.exchange.body_memory().RefusalFor(scope.parser.content_length()), kBodies)) {
    co_return std::unexpected<ParseFailure>(*std::move(full));
  }
  while (!scope.parser.done()) {
    const bool came = co_await scope.body.More();
    if (!came && scope.body.failure()) co_return std::unexpected<ParseFailure>(*scope.body.failure());
    if (!came) co_return false;
    if (auto full = FailureOf(scope.exchange.body_memory().GrowTo(body.size()), kBodies)) {
      co_return std::unexpected<ParseFailure>(*std::move(full));
    }
  }
  co_return true;
}

// Everything that can be said without the body. Sets the route when nothing is in the way.
std::optional<HttpResponse> Session::Check(RequestScope& scope) {
  const HttpRequest& request = scope.parser.request();
  const HttpResponse forbidden{.status = 403,
                               .body = R"({"error":"host or origin not allowed; see OLLAMA_ORIGINS"})"};
  if (bound_ && !transport_.origins.AllowsHost(request.host, *bound_)) {
    scope.log.error = "host refused";
    return forbidden;
  }
  if (const std::string* origin = request.Find("origin")) {
    if (!transport_.origins.AllowsOrigin(*origin, request.host)) {
      scope.log.error = "origin refused";
      return forbidden;
    }
    if (request.method == "OPTIONS") return PreflightResponse(*origin, RequestedHeaders(request));
    for (HeaderField& field : CorsFields(*origin)) scope.writer.AddField(std::move(field));
  }
  RouteMatch match = transport_.router.Match(request.method, request.path);
  switch (match.kind) {
    case RouteMatch::Kind::kFound:
      scope.route = match.route;
      scope.log.route = match.route->path;
      return CheckAccess(scope);
    case RouteMatch::Kind::kRedirect: {
      std::string location = request.target.substr(0, request.target.find('?'));
      while (location.size() > 1 && location.ends_with('/')) location.pop_back();
      if (!request.query.empty()) location += "?" + request.query;
      return HttpResponse{.status = 307, .content_type = {}, .headers = {{"Location", std::move(location)}}};
    }
    case RouteMatch::Kind::kMethodNotAllowed: {
      HttpResponse response = request.method == "OPTIONS" ? HttpResponse{.status = 204, .content_type = {}}
                                                          : ErrorResponse(scope, 405, "method not allowed");
      response.headers.push_back({"Allow", std::move(match.allow)});
      return response;
    }
    case RouteMatch::Kind::kNotFound:
      break;
  }
  if (request.method == "OPTIONS" && request.path == "*")
    return HttpResponse{.status = 204, .content_type = {}};
  return ErrorResponse(scope, 404, "not found");
}

// Whether the client may use the route. A refused body is not read: the connection ends with the answer.
std::optional<HttpResponse> Session::CheckAccess(RequestScope& scope) {
  auto admitted = transport_.access.Admit(scope.parser.request(), scope.route->access,
                                          scope.route->cancel_on_disconnect, Clock::now());
  if (admitted) {
    scope.log.key = admitted->name;
    scope.parser.request().identity = std::move(admitted->name);
    scope.parser.request().admin = admitted->admin;
    scope.parser.request().weight = admitted->weight;
    scope.exchange.SetPermit(std::move(admitted->permit));
    if (admitted->rate) AddRateFields(scope.writer, *admitted->rate);
    // A body to wait for would keep the place.
    const bool is_health = scope.route->access == Access::kOpen && scope.parser.done();
    if (is_health || place() == Place::kNormal || MoveToNormalPlace()) return std::nullopt;
    return ErrorResponse(scope, 503, "too many connections");
  }
  const AccessControl::Refusal& refusal = admitted.error();
  if (refusal.rate) AddRateFields(scope.writer, *refusal.rate);
  if (!scope.parser.done()) scope.writer.CloseAfterwards();
  HttpResponse response = ErrorResponse(scope, refusal.status, refusal.message);
  if (refusal.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  if (refusal.status == 429) {
    response.headers.push_back({"Retry-After", fmt::format("{}", refusal.retry_after.count())});
  }
  return response;
}

// Undoes the body's encoding, in steps that hold nobody else up.
Awaitable<std::expected<void, ParseFailure>> Session::DecodeBody(RequestScope& scope,
                                                                 ContentEncoding encoding) {
  constexpr size_t kStepBytes = size_t{256} << 10;
  std::string& body = scope.parser.request().body;
  const std::string encoded = std::exchange(body, {});
  BodyDecoder decoder(encoding, encoded, BodyBytesMax(*scope.route, transport_.limits));
  std::expected<bool, ParseFailure> done = false;
  const std::function<void()> decode = [&done, &decoder] { done = decoder.Step(kStepBytes); };
  while (done && !*done) {
    co_await transport_.compute(scope.parser.request().party, decode);
    if (auto full = FailureOf(scope.exchange.body_memory().GrowTo(encoded.size() + decoder.decoded_bytes()),
                              kBodies)) {
      co_return std::unexpected<ParseFailure>(*std::move(full));
    }
  }
  if (!done) co_return std::unexpected<ParseFailure>(std::move(done).error());
  body = decoder.MoveDecoded();
  co_return std::expected<void, ParseFailure>();
}

// The answer to what went wrong with a body; the connection cannot go on.
Awaitable<void> Session::Refuse(RequestScope& scope, const ParseFailure& why) {
  scope.writer.CloseAfterwards();
  HttpResponse failure = ErrorResponse(scope, why.status, why.reason);
  if (why.status == 429) failure.headers.push_back({"Retry-After", "1"});
  if (why.status == 415) failure.headers.push_back({"Accept-Encoding", "gzip, zstd"});
  co_await scope.exchange.Send(std::move(failure));
}

Awaitable<void> Session::Answer(RequestScope& scope) {
  std::optional<HttpResponse> refusal = Check(scope);
  if (refusal) {
    co_await scope.exchange.Send(std::move(*refusal));
    co_return;
  }
  HttpRequest& request = scope.parser.request();
  request.party = PartyOf(request.identity, connection_->peer(), request.weight);
  scope.body.SetOwner(request.party);
  scope.exchange.SetParty(request.party);
  const bool streamed = scope.route->streamed_body_bytes > 0;
  const auto allowed = scope.parser.AllowBody(BodyBytesMax(*scope.route, transport_.limits));
  if (!allowed) {
    co_await Refuse(scope, allowed.error());
    co_return;
  }
  const bool has_body = scope.parser.chunked() || scope.parser.content_length() > 0;
  auto encoding = has_body ? ContentEncodingOf(scope.parser.request()) : ContentEncoding::kIdentity;
  if (encoding && streamed && *encoding != ContentEncoding::kIdentity) {
    encoding =
        std::unexpected<ParseFailure>({415, "this endpoint takes bodies without Content-Encoding only"});
  }
  if (!encoding) {
    co_await Refuse(scope, encoding.error());
    co_return;
  }
  if (!streamed && !scope.parser.done()) {
    const auto body = co_await ReadBody(scope);
    if (!body) {
      co_await Refuse(scope, body.error());
      co_return;
    }
    if (!*body) co_return;
  }
  if (*encoding != ContentEncoding::kIdentity && !scope.parser.request().body.empty()) {
    const auto decoded = co_await DecodeBody(scope, *encoding);
    if (!decoded) {
      co_await Refuse(scope, decoded.error());
      co_return;
    }
  }
  if (scope.route->cancel_on_disconnect) {
    co_await (RunHandler(scope) || WatchClient(scope) || scope.writer.SendKeepAlives());
  } else {
    co_await RunHandler(scope);
  }
  if (scope.out_of_memory) {
    if (scope.log.status == 0) scope.log.status = 503;
    scope.log.error = "out of memory";
    transport_.on_request(scope.log);
    std::rethrow_exception(scope.out_of_memory);
  }
  if (scope.writer.started() || connection_->gone()) co_return;
  if (scope.body.failure()) {
    co_await Refuse(scope, *scope.body.failure());
    co_return;
  }
  if (!scope.body.done()) {
    if (connection_->ended()) co_return;  // the client left in the middle of its body
    scope.writer.CloseAfterwards();       // the handler failed before it had all of it
  }
  scope.log.error = "no response";
  const HttpResponse failure =
      transport_.error_response(scope.parser.request(), 500, "internal server error", scope.log.id);
  co_await scope.exchange.Send(failure);
}

// Ends when the client is gone. One that has only finished sending still waits for its answer.
Awaitable<void> Session::WatchClient(RequestScope& scope) {
  co_await connection_->WaitForEnd();
  // The handler has ended, as for nearly every request. To wait on would throw, which is a tenth of the time
  // for a refusal.
  const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none || connection_->gone()) co_return;
  if (connection_->ended()) {
    co_await (connection_->WaitForReset() || scope.writer.ProbeClient());
  } else {
    co_await connection_->WaitForReset();
  }
}

// Never throws, so that its end ends those who wait beside it: a canceled handler has simply ended, a broken
// one is logged.
Awaitable<void> Session::RunHandler(RequestScope& scope) {
  try {
    co_await scope.route->handler(scope.exchange);
  } catch (const boost::system::system_error& error) {
    if (error.code() == asio::error::operation_aborted) {
      scope.log.error = "client gone";
    } else {
      spdlog::error("id={} handler failed: {}", scope.log.id, error.what());
    }
  } catch (const std::bad_alloc&) {
    scope.out_of_memory = std::current_exception();
  } catch (const std::exception& error) {
    spdlog::error("id={} handler failed: {}", scope.log.id, error.what());
  }
}

}  // namespace quire::server
