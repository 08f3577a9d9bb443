#include "server/routes/metrics_route.h"

#include <memory>
#include <string>
#include <utility>

#include "server/http/io_turns.h"
#include "server/http/party.h"
#include "server/routes/relay.h"

namespace quire::server {
namespace {

// What the route's requests share.
struct MetricsRoute {
  const Metrics& metrics;
  const std::function<MetricsSnapshot()> snapshot;
  const std::shared_ptr<IoTurns> turns = std::make_shared<IoTurns>(IoTurns::kText);
};

Awaitable<void> Scrape(MetricsRoute& route, Exchange& exchange) {
  HttpResponse response{.content_type = "text/plain; version=0.0.4; charset=utf-8"};
  {
    const auto turn = co_await route.turns->Wait(PartyOf(exchange));
    if (!turn) co_return;
    response.body = route.metrics.Text(route.snapshot());
  }
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
