// State shared by all sessions of a server: limits, rules, routes, and the bytes that bodies hold together.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "api/base/fair/quota.h"
#include "server/http/access.h"
#include "server/http/io_turns.h"
#include "server/http/origin_check.h"
#include "server/http/parser.h"
#include "server/http/request_log.h"
#include "server/http/router.h"
#include "server/http/tls.h"

namespace quire::server {

struct TransportLimits {
  ParserLimits parser = {};
  uint64_t buffered_bodies_bytes = uint64_t{1} << 30;  // request bodies in memory, all connections together
  // The last quarter is for bodies of which every connection may hold one: however many large bodies clients
  // hold, small ones have room. One party's large bodies may hold half, so that others' have room, but always
  // one of the largest size and what its texts and their objects become.
  fair::QuotaLimits Bodies() const {
    const uint64_t objects =
        parser.body_bytes / 8;  // 2,048 texts of the smallest --max-body, or as many messages
    return Shares(buffered_bodies_bytes, 2 * parser.body_bytes + objects);
  }
  // Answers that are collected before they are sent, by what they are estimated to have as JSON: one, and all
  // together, which are shared as request bodies are.
  uint64_t answer_bytes_max = uint64_t{128} << 20;
  uint64_t answers_bytes = uint64_t{512} << 20;
  fair::QuotaLimits Answers() const { return Shares(answers_bytes, answer_bytes_max); }
  size_t connections = 1024;
  std::chrono::nanoseconds idle_timeout = std::chrono::seconds(120);  // no byte of a next request
  std::chrono::nanoseconds header_timeout =
      std::chrono::seconds(30);  // from the first byte of a header to its last
  std::chrono::nanoseconds body_timeout =
      std::chrono::seconds(30);  // that a body may be waited for beyond its bytes at the minimum rate
  uint64_t body_bytes_per_second_min = 16 << 10;
  // A reader that takes nothing of a stream, or is as far behind the bodies' rate with whole answers.
  std::chrono::nanoseconds write_timeout = std::chrono::seconds(60);
  std::chrono::nanoseconds keep_alive_interval =
      std::chrono::seconds(10);  // between two SSE keep-alive comments

 private:
  fair::QuotaLimits Shares(uint64_t all, uint64_t one) const {
    const uint64_t quarter = all / 4;
    const uint64_t large = all - quarter;
    return {.total = all,
            .small = quarter / std::max<size_t>(connections, 1),
            .large = large,
            .party = std::clamp(one, all / 2, large),
            .leaves_room = true};
  }
};

struct Transport {
  TransportLimits limits;
  Router router;
  OriginPolicy origins;
  // The answer to an error found before a handler ran, in the shape of the path's dialect; a 503 has
  // Retry-After. `id`: Exchange::id().
  std::function<HttpResponse(const HttpRequest&, int status, std::string message, std::string_view id)>
      error_response;
  // Told of every request once it is answered; by default its line goes to the log.
  std::function<void(const RequestLog&)> on_request = LogRequest;
  // An error's message as clients may read it.
  std::function<std::string(std::string_view)> client_text = [](std::string_view text) {
    return std::string(text);
  };
  // The steps of TLS handshakes and of compressed bodies. By default they are computed at once: for tests.
  ComputeStep compute = [](const fair::PartyId&, const std::function<void()>& step) -> Awaitable<void> {
    step();
    co_return;
  };
  AccessControl access = {};
  // As ConnectionTable::MakeNormalRoom().
  std::function<bool(size_t party_connections)> make_normal_room = [](size_t) { return false; };

  bool draining = false;                                // answers carry "Connection: close"
  fair::Quota bodies = fair::Quota(limits.Bodies());    // what request bodies hold, and what became of them
  fair::Quota answers = fair::Quota(limits.Answers());  // those that are collected before they are sent
  // For requests that have come, and for pieces of their bodies.
  std::shared_ptr<IoTurns> turns = std::make_shared<IoTurns>(IoTurns::Pace{.together = 4});
};

}  // namespace quire::server
