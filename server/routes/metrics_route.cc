#include "server/routes/metrics_route.h"

#include <utility>

namespace quire::server {
namespace {

Awaitable<void> Scrape(const Metrics& metrics, const std::function<MetricsSnapshot()>& snapshot,
                       Exchange& exchange) {
  HttpResponse response{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                        .body = metrics.Text(snapshot())};
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
  router.Add({.method = "GET",
              .path = "/metrics",
              .handler = [&metrics, snapshot = std::move(snapshot)](
                             Exchange& exchange) { return Scrape(metrics, snapshot, exchange); },
              .access = Access::kAdmin});
}

}  // namespace quire::server
