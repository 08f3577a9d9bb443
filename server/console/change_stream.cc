#include "server/console/change_stream.h"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <utility>

namespace quire::server {
namespace {

// How often a stream looks for changes. Without viewers nothing looks.
constexpr std::chrono::milliseconds kInterval(500);
// Intervals without a change until a comment shows whether the client is still there.
constexpr int kSilentMax = 20;

}  // namespace

Awaitable<void> StreamChanges(Exchange& exchange, ChangeSource& source, std::function<bool()> draining) {
  boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor);
  int silent = 0;
  for (bool open = true; open && !draining();) {
    const auto changed = co_await source.Next();
    if (changed || ++silent >= kSilentMax) {
      silent = 0;
      std::string event = changed ? "data: " + *changed + "\n\n" : ": keep-alive\n\n";
      open = co_await exchange.Stream("text/event-stream", std::move(event));
    }
    timer.expires_after(kInterval);
    co_await timer.async_wait(kTuple);
  }
  co_await exchange.EndStream();
}

}  // namespace quire::server
