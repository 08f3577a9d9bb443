#include <utility>

#include "server/handlers.h"

namespace quire::server {
namespace {

Awaitable<void> Running(Exchange& exchange) {
  HttpResponse response{.content_type = "text/plain; charset=utf-8", .body = "Ollama is running"};
  co_await exchange.Send(std::move(response));
}

Awaitable<void> Alive(Exchange& exchange) {
  HttpResponse response{.body = R"({"status":"ok"})"};
  co_await exchange.Send(std::move(response));
}

Awaitable<void> Ready(Services& services, Exchange& exchange) {
  HttpResponse response{.body = R"({"status":"ok"})"};
  if (services.draining()) {
    response.status = 503;
    response.body = R"({"status":"draining"})";
  }
  co_await exchange.Send(std::move(response));
}

}  // namespace

void AddHealthRoutes(Router& router, Services& services) {
  router.Add({"GET", "/", Running});
  router.Add({"GET", "/health", Alive});
  router.Add({"GET", "/livez", Alive});
  router.Add({"GET", "/readyz", [&services](Exchange& exchange) { return Ready(services, exchange); }});
}

}  // namespace quire::server
