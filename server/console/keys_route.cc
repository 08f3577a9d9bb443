#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/type.h"
#include "server/console/console.h"
#include "server/console/keys_view.h"
#include "server/http/party.h"
#include "server/routes/handlers.h"

namespace quire::server {
namespace {

constexpr const char* kKeysPath = "/quire/keys";

Awaitable<void> ListKeys(Exchange& exchange, const KeySources& sources) {
  HttpResponse response{
      .body = EncodeKeys(sources.uses(), exchange.request().identity, std::chrono::steady_clock::now()),
      .headers = {{"Cache-Control", "no-store"}}};
  co_await exchange.Send(std::move(response));
}

Awaitable<void> CreateKey(Exchange& exchange, const KeySources& sources) {
  auto request = ParseKeyRequest(exchange.request().body);
  if (!request) {
    co_await SendError(exchange, request.error());
    co_return;
  }
  const std::string name = request->name;
  const auto secret = co_await sources.create(*std::move(request), PartyOf(exchange));
  if (!secret) {
    co_await SendError(exchange, secret.error());
    co_return;
  }
  HttpResponse response{.status = 201,
                        .body = api::Json{{"name", name}, {"key", *secret}}.dump(),
                        .headers = {{"Cache-Control", "no-store"}}};
  co_await exchange.Send(std::move(response));
}

// A key does not remove itself: whoever removes keys can still do so afterwards, and reads the answer.
Awaitable<void> RemoveKey(Exchange& exchange, const KeySources& sources) {
  const auto name = ParseKeyName(exchange.request().body);
  if (!name) {
    co_await SendError(exchange, name.error());
    co_return;
  }
  if (*name == exchange.request().identity) {
    const api::Error error{api::ErrorCode::kForbidden, "a key cannot remove itself; use another admin key",
                           "name"};
    co_await SendError(exchange, error);
    co_return;
  }
  if (const auto removed = co_await sources.remove(*name, PartyOf(exchange)); !removed) {
    co_await SendError(exchange, removed.error());
    co_return;
  }
  HttpResponse response{.status = 204, .content_type = {}};
  co_await exchange.Send(std::move(response));
}

}  // namespace

void AddKeyRoutes(Router& router, const KeySources& sources) {
  const auto add = [&router](const char* method, Handler handler, Operation operation) {
    router.Add({.method = method,
                .path = kKeysPath,
                .handler = std::move(handler),
                .body_bytes_max = kNameBodyBytesMax,
                .access = Access::kAdmin},
               std::move(operation));
  };
  add("GET", [&sources](Exchange& exchange) { return ListKeys(exchange, sources); },
      {"console", "API keys with their limits and last use"});
  add("POST", [&sources](Exchange& exchange) { return CreateKey(exchange, sources); },
      {.tag = "console",
       .summary = "Make an API key; its secret is in this answer only",
       .body = "NewKey",
       .status = 201});
  add("DELETE", [&sources](Exchange& exchange) { return RemoveKey(exchange, sources); },
      {.tag = "console",
       .summary = "Remove an API key; its requests in progress end",
       .body = "KeyName",
       .reply = {},
       .status = 204});
}

}  // namespace quire::server
