#include <utility>

#include "server/routes/handlers.h"
#include "server/routes/openapi.h"

namespace quire::server {
namespace {

// Clients look for Ollama's text; people's browsers ask for a page.
Awaitable<void> Running(Exchange& exchange) {
  if (exchange.request().Accepts("accept", "text/html")) {
    HttpResponse page{
        .status = 302, .content_type = {}, .headers = {{"Location", "/ui/"}, {"Vary", "Accept"}}};
    co_await exchange.Send(std::move(page));
    co_return;
  }
  HttpResponse response{.content_type = "text/plain; charset=utf-8", .body = "Ollama is running"};
  co_await exchange.Send(std::move(response));
}

Awaitable<void> Describe(Exchange& exchange) {
  HttpResponse response{.body = std::string(OpenApiDocument())};
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
  constexpr uint64_t kBodyBytesMax = 1024;  // nobody needs one
  const auto add = [&router](const char* path, Handler handler, std::string_view summary,
                             std::string_view reply = kJson) {
    router.Add({.method = "GET",
                .path = path,
                .handler = std::move(handler),
                .body_bytes_max = kBodyBytesMax,
                .access = Access::kOpen},
               {"health", summary, /*body=*/{}, reply});
  };
  router.Add({"GET", "/openapi.json", Describe}, {"health", "The OpenAPI document"});
  add("/", Running, "The server runs", "text/plain");
  add("/health", Alive, "The process runs");
  add("/livez", Alive, "The process runs");
  add(
      "/readyz", [&services](Exchange& exchange) { return Ready(services, exchange); },
      "Requests are accepted");
}

}  // namespace quire::server
