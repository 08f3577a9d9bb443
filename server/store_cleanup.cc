#include "server/store_cleanup.h"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <utility>

#include "server/routes/blocking.h"

namespace quire::server {

Awaitable<void> CleanStore(StoreTransfer store, WorkPools& pools,
                           std::chrono::steady_clock::duration interval) {
  boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor);
  for (auto wait = std::chrono::steady_clock::duration::zero();; wait = interval) {
    timer.expires_after(wait);
    co_await timer.async_wait(kTuple);
    auto parts = [store] {
      store.RemoveOldParts();
      return true;
    };
    co_await RunBlocking(pools.blobs, std::move(parts));
    auto unnamed = [store] {
      store.RemoveOldUnnamed();
      return true;
    };
    co_await RunBlocking(pools.edits, std::move(unnamed));
  }
}

}  // namespace quire::server
