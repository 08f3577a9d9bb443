#include "server/testing/test_server.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <new>
#include <stdexcept>

#include "server/http/awaitable.h"

namespace quire::server::testing {
namespace {

namespace asio = boost::asio;

HttpResponse PlainError(const HttpRequest&, int status, std::string message, std::string_view) {
  HttpResponse response{.status = status, .content_type = "text/plain", .body = std::move(message)};
  if (status == 503) response.headers.push_back({"Retry-After", "1"});  // as the daemon's
  return response;
}

Awaitable<void> SendJson(Exchange& exchange) {
  const size_t bytes = std::stoul(exchange.request().query);
  std::string text(bytes - 2, '7');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('0' + (i * i + i / 7) % 10);
  HttpResponse response{.body = "\"" + text + "\""};
  co_await exchange.Send(std::move(response));
}

Awaitable<void> Hello(Exchange& exchange) {
  HttpResponse response{.content_type = "text/plain", .body = "hi"};
  co_await exchange.Send(std::move(response));
}

Awaitable<void> Rest(Exchange& exchange) {
  HttpResponse response{.content_type = "text/plain", .body = exchange.request().path};
  co_await exchange.Send(std::move(response));
}

Awaitable<void> Throw(Exchange&) {
  throw std::runtime_error("broken handler");
  co_return;
}

Awaitable<void> OutOfMemory(Exchange&) {
  throw std::bad_alloc();
  co_return;
}

Awaitable<void> Silent(Exchange&) { co_return; }

}  // namespace

// Stands for what a handler owns (a generation): reports when it is destroyed, and whether that was by
// cancellation.
class TestServer::Presence {
 public:
  explicit Presence(TestServer& server) : server_(server) { server_.entered_.set_value(); }
  ~Presence() { server_.cancel_seen_.set_value(cancelled); }
  bool cancelled = true;

 private:
  TestServer& server_;
};

TestServer::TestServer(TransportLimits limits, const std::vector<std::string>& origins)
    : released_(io_, std::chrono::steady_clock::time_point::max()) {
  Transport transport{
      .limits = limits,
      .router = {},
      .origins = OriginPolicy(origins, "box"),
      .error_response = PlainError,
      .on_request = [this](const RequestLog& log) { logs_.push_back(log); },
      .compute = [this](const fair::PartyId&, const std::function<void()>& step) { return Compute(step); }};
  AddRoutes(transport.router);
  server_ = std::make_unique<HttpServer>(io_.get_executor(), std::move(transport));
  const auto bound = server_->Listen({asio::ip::address_v4::loopback(), 0});
  EXPECT_TRUE(bound.has_value());
  port_ = bound->port();
  thread_ = std::thread([this] { io_.run(); });
}

TestServer::~TestServer() {
  OnIoThread([this] {
    server_->StopAccepting();
    server_->AbortAll();
    work_.reset();
  });
  thread_.join();  // the I/O thread has no work left once every session ended
  EXPECT_EQ(server_->sessions(), 0u);
}

uint16_t TestServer::ListenTls(const TlsContext& context) {
  uint16_t port = 0;
  OnIoThread([&] {
    server_->SetTls(context);
    const auto bound = server_->Listen({asio::ip::address_v4::loopback(), 0}, Security::kTls);
    EXPECT_TRUE(bound.has_value());
    if (bound) port = bound->port();
  });
  return port;
}

void TestServer::OnIoThread(std::function<void()> action) {
  std::promise<void> done;
  asio::post(io_, [&] {
    action();
    done.set_value();
  });
  done.get_future().wait();
}

std::vector<RequestLog> TestServer::WaitForLogs() {
  for (;;) {
    bool idle = false;
    std::vector<RequestLog> logs;
    OnIoThread([&] {
      idle = server_->sessions() == 0;
      logs = logs_;
    });
    if (idle) return logs;
    std::this_thread::yield();
  }
}

void TestServer::Release() {
  OnIoThread([this] { released_.cancel(); });
}

void TestServer::Rearm() {
  entered_ = {};
  cancel_seen_ = {};
}

Awaitable<void> TestServer::Compute(const std::function<void()>& step) {
  if (compression_waits_) co_await released_.async_wait(kTuple);
  step();
}

void TestServer::AddRoutes(Router& router) {
  router.Add({"GET", "/hello", Hello}, {});
  router.Add({"GET", "/json", SendJson, true}, {});
  router.Add({.method = "GET", .path = "/open", .handler = Hello, .access = Access::kOpen}, {});
  router.Add({"GET", "/models/{model}", Rest}, {});
  router.Add({"POST", "/throw", Throw}, {});
  router.Add({"POST", "/out-of-memory", OutOfMemory}, {});
  router.Add({"POST", "/silent", Silent}, {});
  router.Add({"POST", "/echo", [this](Exchange& exchange) { return Echo(exchange); }}, {});
  router.Add({"POST", "/stream", [this](Exchange& exchange) { return Stream(exchange); }}, {});
  router.Add({.method = "POST",
              .path = "/upload",
              .handler = [this](Exchange& exchange) { return Upload(exchange); },
              .streamed_body_bytes = uint64_t{1} << 30},
             {});
  router.Add({"POST", "/hold", [this](Exchange& exchange) { return WaitForRelease(exchange); }, true}, {});
  router.Add({"POST", "/flood", [this](Exchange& exchange) { return Flood(exchange); }, true}, {});
  router.Add({"POST", "/trickle", [this](Exchange& exchange) { return Trickle(exchange); }, true}, {});
}

Awaitable<void> TestServer::Echo(Exchange& exchange) {
  HttpResponse response{.content_type = "text/plain", .body = exchange.request().body};
  co_await exchange.Send(std::move(response));
}

Awaitable<void> TestServer::Stream(Exchange& exchange) {
  std::string_view rest = exchange.request().body;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const bool taken = co_await exchange.Stream("application/x-ndjson", std::string(rest.substr(0, end)));
    if (!taken) co_return;
    rest.remove_prefix(end);
  }
  co_await exchange.EndStream();
}

Awaitable<void> TestServer::Upload(Exchange& exchange) {
  auto piece = co_await exchange.ReadBody();
  entered_.set_value();
  co_await released_.async_wait(kTuple);
  std::string all;
  while (piece && !piece->empty()) {
    all += *piece;
    piece = co_await exchange.ReadBody();
  }
  if (!piece) co_return;
  HttpResponse response{.content_type = "text/plain", .body = std::move(all)};
  co_await exchange.Send(std::move(response));
}

Awaitable<void> TestServer::WaitForRelease(Exchange& exchange) {
  Presence presence(*this);
  co_await released_.async_wait(kTuple);
  HttpResponse response{.content_type = "text/plain", .body = "released"};
  const bool sent = co_await exchange.Send(std::move(response));
  if (sent) presence.cancelled = false;
}

// Writes without end: what a reader that takes nothing must not make the server hold in memory.
Awaitable<void> TestServer::Flood(Exchange& exchange) {
  Presence presence(*this);
  const std::string piece(65536, 'x');
  for (;;) {
    const bool taken = co_await exchange.Stream("text/plain", piece);
    if (!taken) co_return;
    flooded_bytes_ += piece.size();
  }
}

// One chunk at once, then keep-alive comments.
Awaitable<void> TestServer::Trickle(Exchange& exchange) {
  Presence presence(*this);
  exchange.KeepAlive("text/event-stream", ": still here\n\n");
  co_await exchange.Stream("text/event-stream", "data: 1\n\n");
  co_await released_.async_wait(kTuple);
  co_await exchange.Stream("text/event-stream", "data: 2\n\n");
  const bool ended = co_await exchange.EndStream();
  if (ended) presence.cancelled = false;
}

}  // namespace quire::server::testing
