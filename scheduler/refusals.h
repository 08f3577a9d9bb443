// Requests that ended one runner after the other, remembered for a while so that they do not end the next.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>

#include "api/base/error.h"
#include "api/base/request.h"

namespace quire::scheduler {

// Not thread-safe. Bounded: at most kMost are remembered, the oldest are forgotten first.
class Refusals {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::minutes kMemory{5};
  static constexpr size_t kMost = 256;

  // `request` as the client sent it.
  void Remember(const std::string& model_key, const api::Request& request, Time now);
  api::Result<void> Check(const std::string& model_key, const api::Request& request, Time now);

 private:
  std::map<std::string, Time> until_;  // by fingerprint
};

}  // namespace quire::scheduler
