// Bodies that are stored while they come: thousands of them at once would keep the thread that serves connections from
// everything else, and have gigabytes of memory.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "scheduler/job_slots.h"
#include "server/http/awaitable.h"
#include "server/http/exchange.h"

namespace quire::server {

// I/O thread only; outlives every call. A few bodies are read at a time, in turns of their parties (http/party.h), a piece in
// each turn. A client that sends nothing has its turn for a moment only, and is waited for without one.
class UploadTurns {
 public:
  // How many bytes of the body are to be written together: where there is no room for many among all bodies, a few.
  static size_t ReserveGathered(Exchange& exchange);
  // As many of the body, fewer at its end, where it is empty at last. Nothing: as Exchange::ReadBody().
  Awaitable<std::optional<std::string>> Gather(Exchange& exchange, size_t bytes);

 private:
  Awaitable<std::optional<std::string>> Read(Exchange& exchange);

  std::shared_ptr<scheduler::JobSlots> slots_;  // once the thread's executor is known
};

}  // namespace quire::server
