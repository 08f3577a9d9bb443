// The daemon's regular removal of what crashed and failed requests have left in the store.
#pragma once

#include <chrono>

#include "server/http/awaitable.h"
#include "server/registry/store_transfer.h"
#include "server/routes/executor.h"

namespace quire::server {

inline constexpr std::chrono::hours kCleanupInterval{24};

// At once and after each interval, for as long as the executor runs. The work is done on the pools of its
// kinds, and takes nothing that a transfer or a request in progress needs (StoreTransfer, BlobUsers). The
// pools outlive it.
Awaitable<void> CleanStore(StoreTransfer store, WorkPools& pools,
                           std::chrono::steady_clock::duration interval = kCleanupInterval);

}  // namespace quire::server
