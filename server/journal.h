// The log's way out: the journal, with a field per fact, when it is what stderr leads to; else lines on
// stderr.
#pragma once

#include <cstdint>

#include "server/http/request_log.h"

namespace quire::server {

// Sets spdlog's default logger up, with a thread that writes. Logging never waits for a reader of the log: at
// most 4,096 lines and 1 MiB wait for it, the oldest are dropped for newer ones. Once, before any other
// thread.
void SetUpLog(int32_t debug);
// Waits until all lines are written, for a second at most. False: nobody reads them.
bool DrainLog();
// Lines dropped since the start.
uint64_t DroppedLogLines();
// 0 info, 1 debug, 2 trace. Any time.
void SetLogLevel(int32_t debug);

// One request: as LogRequest(), or as an entry of the journal with the fields REQUEST_ID, MODEL, ENDPOINT,
// CLIENT, STATUS, QUEUE_MS, TTFT_MS, PROMPT_TOKENS, CACHED_TOKENS, MISS_REASON, OUTPUT_TOKENS, FINISH_REASON,
// RUNNER_PID.
void WriteRequest(const RequestLog& log);

}  // namespace quire::server
