#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <string>
#include <utility>

#include "server/console/console.h"

namespace quire::server {
namespace {

using Clock = std::chrono::steady_clock;

// How often a viewer's stream looks for changes. Without viewers nothing looks.
constexpr std::chrono::milliseconds kInterval(500);
constexpr int kSilentMax =
    20;  // intervals without a change until a comment shows whether the client is still there

bool WantsEvents(const HttpRequest& request) {
  const std::string* accept = request.Find("accept");
  return accept != nullptr && accept->find("text/event-stream") != std::string::npos;
}

Awaitable<void> StreamNow(Exchange& exchange, const NowSources& sources, Viewer viewer) {
  boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor);
  std::string last;
  int silent = 0;
  for (bool open = true; open && !sources.draining();) {
    std::string body = EncodeNow(sources, viewer, Clock::now());
    const bool changed = body != last;
    if (changed || ++silent >= kSilentMax) {
      silent = 0;
      std::string event = changed ? "data: " + body + "\n\n" : ": keep-alive\n\n";
      open = co_await exchange.Stream("text/event-stream", std::move(event));
    }
    last = std::move(body);
    timer.expires_after(kInterval);
    co_await timer.async_wait(kTuple);
  }
  co_await exchange.EndStream();
}

Awaitable<void> Now(Exchange& exchange, const NowSources& sources) {
  Viewer viewer{.key = exchange.request().identity, .admin = exchange.request().admin};
  if (WantsEvents(exchange.request())) {
    co_await StreamNow(exchange, sources, std::move(viewer));
    co_return;
  }
  HttpResponse response{.body = EncodeNow(sources, viewer, Clock::now()),
                        .headers = {{"Cache-Control", "no-store"}}};
  co_await exchange.Send(std::move(response));
}

}  // namespace

void AddNowRoutes(Router& router, const NowSources& sources) {
  constexpr uint64_t kBodyBytesMax = 1024;  // nobody needs one
  // Not cancel_on_disconnect: a page that looks takes none of its key's concurrent requests.
  router.Add({.method = "GET",
              .path = "/quire/now",
              .handler = [&sources](Exchange& exchange) { return Now(exchange, sources); },
              .body_bytes_max = kBodyBytesMax});
}

}  // namespace quire::server
