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

// What tells a request from others, whatever its size. A request is the same when all that its client asks
// for is; where and with what exchange it came does not count.
struct RequestFingerprint {
  uint64_t outline =
      0;  // of its numbers, the sizes of its texts and lists, and the first and last of each list
  api::Sha256::Digest digest = {};  // of all of it: another request must never be rejected for it

  bool operator==(const RequestFingerprint&) const = default;
};

// Takes a millisecond for each megabyte, or more. Any thread.
RequestFingerprint FingerprintOf(const api::Request& request);
// FingerprintOf() takes too long for the I/O thread (PoisonGuard).
bool IsSlowToHash(const api::Request& request);

// Not thread-safe. Holds at most kEntriesMax requests; the oldest are dropped first. It keeps no request, but
// its fingerprint.
class PoisonRequestList {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::minutes kRetention{5};
  static constexpr size_t kEntriesMax = 256;

  // The fingerprint of this request is being made: requests like it wait for theirs, which comes behind it.
  void Announce(const std::string& model_key, const api::Request& request, Time now);
  // `fingerprint`: of the request as the client sent it.
  void Remember(const std::string& model_key, const RequestFingerprint& fingerprint, Time now);
  // False: Check() would find nothing. Takes microseconds, however large the request is.
  bool MayHave(const std::string& model_key, const api::Request& request) const;
  api::Result<void> Check(const std::string& model_key, const RequestFingerprint& fingerprint, Time now);

 private:
  struct Entry {
    std::string model_key;
    RequestFingerprint fingerprint;
    Time until = {};
  };

  std::vector<Entry>::iterator Find(const std::string& model_key, const RequestFingerprint& fingerprint);

  std::vector<Entry> entries_;
};

}  // namespace quire::scheduler
