#include "server/console/change_stream.h"

#include <fmt/format.h>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <utility>

#include "server/http/party.h"
#include "server/routes/relay.h"

namespace quire::server {
namespace {

// How often a stream looks for changes. Without viewers nothing looks.
constexpr std::chrono::milliseconds kInterval(500);
// Without a change until a comment shows whether the client is still there.
constexpr std::chrono::seconds kSilenceMax(10);

}  // namespace

Awaitable<void> StreamChanges(Exchange& exchange, ChangeSource& source, std::function<bool()> draining,
                              fair::Quota& streams) {
  fair::Quota::Lease stream(streams, PartyOf(exchange));
  if (stream.GrowTo(1)) {
    const api::Error busy{api::ErrorCode::kRateLimited,
                          fmt::format("too many open event streams of this client (limit: {}); close one",
                                      kStreamLimits.party)};
    co_await SendError(exchange, busy);
    co_return;
  }
  boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor);
  auto written = std::chrono::steady_clock::now();
  for (bool open = true; open && !draining();) {
    const auto changed = co_await source.Next();
    const auto now = std::chrono::steady_clock::now();
    if (changed || now - written >= kSilenceMax) {
      written = now;
      std::string event = changed ? "data: " + *changed + "\n\n" : ": keep-alive\n\n";
      open = co_await exchange.Stream("text/event-stream", std::move(event));
    }
    timer.expires_after(kInterval);
    co_await timer.async_wait(kTuple);
  }
  co_await exchange.EndStream();
}

}  // namespace quire::server
