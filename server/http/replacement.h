// Which connection without a request a new one replaces when there is no place left. A pure function of state.
//
// A client that has just connected has not had the time to say what it wants: it gives its place after those that keep
// a connection only in case they need it again. So a crowd of new clients replaces idle connections before its own.
#pragma once

#include <chrono>
#include <cstdint>

namespace quire::server {

struct Idleness {
  enum class Stage : uint8_t {
    kClosing,          // has had its last answer
    kBeforeRequest,    // has sent no request yet, or shakes hands
    kBetweenRequests,  // kept alive
  };
  Stage stage = Stage::kBeforeRequest;
  std::chrono::steady_clock::time_point since;
};

// A connection younger than this is fresh.
inline constexpr std::chrono::seconds kFreshTime{2};

// In this order, and of two alike the older one: closing, not fresh without a request, not fresh between requests,
// fresh without a request, fresh between requests.
bool ReplacedBefore(const Idleness& one, const Idleness& other, std::chrono::steady_clock::time_point now);

}  // namespace quire::server
