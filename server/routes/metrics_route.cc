#include "server/routes/metrics_route.h"

#include <utility>

namespace quire::server {
namespace {

Awaitable<void> Scrape(const Metrics& metrics, const std::function<MetricsMoment()>& moment,
                       Exchange& exchange) {
  HttpResponse response{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                        .body = metrics.Text(moment())};
  co_await exchange.Send(std::move(response));
}

}  // namespace

MetricsMoment MomentOf(const HttpServer& server) {
  MetricsMoment moment;
  moment.connections = server.sessions();
  moment.ready = !server.draining();
  server.ForEachRequest([&moment](const RequestLog& log) {
    if (log.stored_model.empty()) return;
    MetricsMoment::Requests& requests = moment.requests[log.stored_model];
    ++(log.queued ? requests.running : requests.waiting);
  });
  return moment;
}

void AddMetricsRoutes(Router& router, const Metrics& metrics, std::function<MetricsMoment()> moment) {
  router.Add({"GET", "/metrics", [&metrics, moment = std::move(moment)](Exchange& exchange) {
                return Scrape(metrics, moment, exchange);
              }});
}

}  // namespace quire::server
