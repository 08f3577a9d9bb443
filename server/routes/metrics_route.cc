#include "server/routes/metrics_route.h"

#include <boost/asio/this_coro.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "server/http/party.h"
#include "server/routes/paced_turns.h"
#include "server/routes/relay.h"

namespace quire::server {
namespace {

// What the route's requests share.
struct MetricsRoute {
  const Metrics& metrics;
  const std::function<MetricsSnapshot()> snapshot;
  std::optional<PacedTurns> turns = {};  // once the thread's executor is known
};

Awaitable<void> Scrape(MetricsRoute& route, Exchange& exchange) {
  if (!route.turns) route.turns.emplace(co_await boost::asio::this_coro::executor);
  PacedTurns::Work write = [&route] { return route.metrics.Text(route.snapshot()); };
  auto body = co_await route.turns->Run(PartyOf(exchange).name(), std::move(write));
  if (!body) {
    co_await SendError(exchange, body.error());
    co_return;
  }
  HttpResponse response{.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = *std::move(body)};
  co_await exchange.Send(std::move(response));
}

}  // namespace

MetricsSnapshot SnapshotOf(const HttpServer& server, const PrefillEstimates& estimates,
                           std::chrono::steady_clock::time_point now) {
  MetricsSnapshot snapshot;
  snapshot.connections = server.sessions();
  snapshot.ready = !server.draining();
  server.ForEachRequest([&](const RequestLog& log) {
    if (log.stored_model.empty()) return;
    MetricsSnapshot::Requests& requests = snapshot.requests[log.stored_model];
    ++(log.queued ? requests.running : requests.waiting);
    snapshot.prefill[log.stored_model].pending_seconds += estimates.RemainingSeconds(log, now);
  });
  return snapshot;
}

void AddMetricsRoutes(Router& router, const Metrics& metrics, std::function<MetricsSnapshot()> snapshot) {
  const auto route = std::make_shared<MetricsRoute>(metrics, std::move(snapshot));
  router.Add({.method = "GET",
              .path = "/metrics",
              .handler = [route](Exchange& exchange) { return Scrape(*route, exchange); },
              .access = Access::kAdmin},
             {"health", "Metrics in Prometheus' format", /*body=*/{}, "text/plain"});
}

}  // namespace quire::server
