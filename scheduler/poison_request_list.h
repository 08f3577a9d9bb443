// Poison requests: they killed one runner after the other and are rejected for a while, so that they do not
// kill the next.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>

#include "api/base/error.h"
#include "api/base/request.h"

namespace quire::scheduler {

// Not thread-safe. Holds at most kEntriesMax requests; the oldest are dropped first.
class PoisonRequestList {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::minutes kRetention{5};
  static constexpr size_t kEntriesMax = 256;

  // `request` as the client sent it.
  void Remember(const std::string& model_key, const api::Request& request, Time now);
  api::Result<void> Check(const std::string& model_key, const api::Request& request, Time now);

 private:
  std::map<std::string, Time> until_;  // by fingerprint
};

}  // namespace quire::scheduler
