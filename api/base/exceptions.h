// How a process ends when an exception, std::bad_alloc above all, leaves what may not fail. One catch per
// request, in the daemon (server/http/session.h) and in a runner (runner/engine/process/preparation.cc), ends
// what a request alone needs. Elsewhere the service manager or the scheduler replaces the process.
#pragma once

#include <exception>

#include "api/base/error.h"

namespace quire::api {

// From now on std::terminate() writes one line to stderr, without allocating, and aborts. `program` outlives
// the process.
void InstallTerminateHandler(const char* program);

// For what a request's work threw on another thread or in another coroutine: std::bad_alloc is kUnavailable,
// anything else kInternal.
Error ErrorOf(const std::exception& thrown);

}  // namespace quire::api
