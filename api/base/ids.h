#pragma once

#include <cstdint>

namespace quire::api {

using TokenId = int32_t;

// Names one request on one runner link. Made by the scheduler, never taken from a client; not reused in a
// process.
enum class RequestId : uint64_t {};

}  // namespace quire::api
