// Poison requests: they killed one runner after the other and are rejected for a while, so that they do not
// kill the next.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "api/base/request.h"
#include "api/base/sha256.h"

namespace quire::scheduler {

// Not thread-safe. Holds at most kEntriesMax requests; the oldest are dropped first. It keeps no request, but 32 bytes of each.
// A request is the same when all that its client asks for is; where and with what exchange it came does not count.
class PoisonRequestList {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::minutes kRetention{5};
  static constexpr size_t kEntriesMax = 256;

  // `request` as the client sent it.
  void Remember(const std::string& model_key, const api::Request& request, Time now);
  // Reads the texts of a request only if one of the same size and model is in the list.
  api::Result<void> Check(const std::string& model_key, const api::Request& request, Time now);

 private:
  struct Entry {
    std::string model_key;
    uint64_t size = 0;
    api::Sha256::Digest digest = {};  // another request must never be rejected for it
    Time until = {};
  };

  std::vector<Entry>::iterator Find(const std::string& model_key, const api::Request& request);

  std::vector<Entry> entries_;
};

}  // namespace quire::scheduler
